"""Tests of trainer_kai.cli.input."""
