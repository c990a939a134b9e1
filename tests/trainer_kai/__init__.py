"""The library under every process."""
