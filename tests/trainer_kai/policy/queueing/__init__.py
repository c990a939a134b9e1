"""Tests of trainer_kai.policy.queueing."""
