"""Nodes: predicates, ranking, placement, and the statement of what was placed."""
