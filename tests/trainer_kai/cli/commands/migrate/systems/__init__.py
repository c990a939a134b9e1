"""Tests of the rules of each system."""
