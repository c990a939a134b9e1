"""What our manifests install, to compare a cluster with."""
