"""What Kubernetes objects mean to us."""
