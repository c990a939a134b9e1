"""What the manifests install, to compare a cluster with."""
