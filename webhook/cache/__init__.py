"""What the webhook remembers of the cluster, bounded in bytes."""
