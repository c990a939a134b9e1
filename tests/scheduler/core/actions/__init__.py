"""Tests of scheduler.core.actions."""
