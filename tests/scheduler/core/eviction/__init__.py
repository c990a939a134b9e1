"""Tests of scheduler.core.eviction."""
