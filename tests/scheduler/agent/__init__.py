"""Tests of the agent in reservation pods, on a stub of the library that reads devices."""
