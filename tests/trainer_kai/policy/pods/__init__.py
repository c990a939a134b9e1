"""Tests of trainer_kai.policy.pods."""
