"""Tests of scheduler.shell.evict.evictor."""
