"""Tests of scheduler.state.pods."""
