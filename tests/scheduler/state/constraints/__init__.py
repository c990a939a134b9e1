"""Tests of scheduler.state.constraints."""
