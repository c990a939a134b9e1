"""Tests of scheduler.shell.bind.claims."""
