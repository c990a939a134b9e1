"""Fakes of the API server and of its transport."""
