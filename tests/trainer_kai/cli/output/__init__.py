"""Tests of trainer_kai.cli.output."""
