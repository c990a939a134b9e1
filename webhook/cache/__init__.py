"""What the webhook caches of the cluster, bounded in bytes."""
