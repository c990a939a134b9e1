"""Tests of scheduler.core.gang."""
