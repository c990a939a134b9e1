"""Messages: why a PodGroup waits and why a victim is evicted, as sentences made from data."""
