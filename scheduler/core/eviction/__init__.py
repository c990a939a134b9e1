"""Which victims make room for a PodGroup: who may go, in which order, and how that is searched."""
