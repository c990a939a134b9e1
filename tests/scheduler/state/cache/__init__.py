"""Tests of scheduler.state.cache."""
