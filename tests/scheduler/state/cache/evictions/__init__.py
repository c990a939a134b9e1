"""Tests of scheduler.state.cache.evictions."""
