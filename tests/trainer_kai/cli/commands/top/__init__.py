"""Tests of trainer_kai.cli.commands.top."""
