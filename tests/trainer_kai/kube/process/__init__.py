"""Tests of trainer_kai.kube.process."""
