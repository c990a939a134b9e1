"""Our client on the real API server, and what it has to survive there."""
