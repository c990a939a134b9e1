"""Tests of scheduler.core.queues."""
