"""Shares of GPUs."""
