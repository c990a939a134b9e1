"""The rules of each system that a cluster can move from. Pure."""
