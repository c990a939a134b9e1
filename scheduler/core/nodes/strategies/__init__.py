"""Placement strategies: where the tasks of one attempt may be placed, in which order."""
