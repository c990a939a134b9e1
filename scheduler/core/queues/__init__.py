"""Queues: fair share, order, and which queue may reclaim from which."""
