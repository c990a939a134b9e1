"""ResourceClaims: the devices of nodes, what pods request of them, and what is allocated."""
