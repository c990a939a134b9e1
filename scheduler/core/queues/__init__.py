"""Queues: fair share, order, and what may be reclaimed from whom."""
