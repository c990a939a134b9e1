"""The work queue of a controller: keys in, calls of its reconciler out, with back-off."""
