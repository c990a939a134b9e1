"""What the scheduler says: conditions, events, status, metrics and its debug dump."""
