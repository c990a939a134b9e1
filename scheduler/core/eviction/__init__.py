"""The victims of a plan: eviction units, their order, and the search for a set of them."""
