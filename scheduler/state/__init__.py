"""The state of the cluster as arrays: objects and assumed changes in, snapshots out. No I/O."""
