"""Tests of trainer_kai.kube.auth."""
