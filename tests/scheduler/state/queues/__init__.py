"""Tests of scheduler.state.queues."""
