"""Nodes: predicates, ranking, placement, and the statement that records each change."""
