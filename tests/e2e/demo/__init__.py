"""Tests of the demo that need no cluster."""
