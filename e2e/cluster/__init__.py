"""The real chain on one machine."""
