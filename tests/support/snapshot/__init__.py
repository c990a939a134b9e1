"""Snapshots for tests, random ones too, and what holds of every plan made of them."""
