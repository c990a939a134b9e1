"""Tests of scheduler.shell.bind."""
