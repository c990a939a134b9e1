"""Checks of admission: webhooks, policies, certificates, and dry runs through them."""
