"""What of the manifests needs no cluster."""
