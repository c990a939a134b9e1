"""The work queue of a controller: it calls the reconciler with keys, and retries with back-off."""
