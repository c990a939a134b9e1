"""The parts of the manifest tests that need no cluster."""
