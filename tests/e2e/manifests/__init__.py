"""What of the tests of the manifests needs no cluster."""
