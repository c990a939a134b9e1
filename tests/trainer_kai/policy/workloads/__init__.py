"""Tests of trainer_kai.policy.workloads."""
