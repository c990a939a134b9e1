"""What the cluster said and what we assumed since, kept as columns.

Mutable, but without I/O: events are handed in, snapshots are handed out. It never decides.
"""
