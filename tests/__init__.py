"""Tests, room by room; whatever several of them need is in `support`."""
