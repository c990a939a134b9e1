"""Tests of trainer_kai.policy.expand."""
