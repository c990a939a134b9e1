"""Shares of GPUs, which are one sort of devices; nothing else in the core knows them."""
