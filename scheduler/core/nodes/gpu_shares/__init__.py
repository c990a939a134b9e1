"""Shares of GPUs, one sort of devices: of what places pods only the static predicates know them."""
