"""Tests of trainer_kai.kube.events."""
