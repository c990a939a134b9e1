"""Tests of trainer_kai.kube.leader."""
