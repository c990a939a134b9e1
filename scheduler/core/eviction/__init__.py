"""Which victims make room for a PodGroup: candidates, their order, and the search for a set."""
