"""Tests of trainer_kai.policy.podgroups."""
