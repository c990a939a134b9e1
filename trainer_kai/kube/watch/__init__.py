"""List and watch: every net change of the objects of one kind, exactly once."""
