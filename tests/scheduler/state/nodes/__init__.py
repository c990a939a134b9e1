"""Tests of scheduler.state.nodes."""
