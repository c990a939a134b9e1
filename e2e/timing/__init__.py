"""Tests that measure time: each runs alone (mark `serial`)."""
