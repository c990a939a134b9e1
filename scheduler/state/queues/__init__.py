"""Queues as rows, and which namespaces may use them."""
