"""Tests of trainer_kai.cli.commands.list."""
