"""The cluster as the watches show it, with the assumed changes of the scheduler."""
