"""Tests of trainer_kai.kube.workqueue."""
