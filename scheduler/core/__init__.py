"""The decision itself: arithmetic on arrays, from a snapshot to a plan.

Pure. It never waits, logs, reads a clock or draws a random number, and it does not know that
Kubernetes exists.
"""
