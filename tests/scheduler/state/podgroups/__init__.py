"""Tests of scheduler.state.podgroups."""
