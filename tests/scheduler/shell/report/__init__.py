"""Tests of scheduler.shell.report.status."""
