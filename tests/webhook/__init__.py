"""Admission, without a cluster."""
