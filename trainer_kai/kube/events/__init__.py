"""Kubernetes Events: the recorder, and what it combines, counts and drops."""
