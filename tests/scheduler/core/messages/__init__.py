"""Tests of scheduler.core.nodes."""
