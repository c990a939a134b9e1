"""Checks of the cluster: kinds, queues, their access, and nodes."""
