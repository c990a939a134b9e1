"""The rules of admission, as pure functions."""
