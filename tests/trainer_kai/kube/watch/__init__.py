"""Tests of trainer_kai.kube.watch."""
