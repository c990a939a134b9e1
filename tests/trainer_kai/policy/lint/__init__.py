"""The rules of lint."""
