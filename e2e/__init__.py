"""The real chain, and what is proved on it."""
