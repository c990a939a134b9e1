"""Tests of trainer_kai.kube.rest."""
