"""Leader election on a Lease, and the fence in front of the writes of a leader."""
