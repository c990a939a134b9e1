"""Devices that pods get one by one; beside the static predicates no placing code knows a sort."""
