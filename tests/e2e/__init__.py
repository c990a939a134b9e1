"""The parts of the real chain that need no cluster to be tested."""
