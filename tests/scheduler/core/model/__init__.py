"""Tests of scheduler.core.model."""
