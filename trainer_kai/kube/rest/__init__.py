"""Requests, responses and errors of the REST API as values, and the transports that carry them."""
