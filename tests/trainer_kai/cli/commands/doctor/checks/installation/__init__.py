"""Tests of trainer_kai.cli.commands.doctor.checks.installation."""
