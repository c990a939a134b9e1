"""What `manifests/` promises, asked of a real API server."""
