"""Tests of the simulated autoscaler."""
