"""Tests of the move from other systems."""
