"""Tests of scheduler.state.snapshot."""
