"""What `manifests/` installs, tested on a real API server."""
