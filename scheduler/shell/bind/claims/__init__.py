"""Devices of ResourceClaims, written before a pod is bound, and released if it is not."""
