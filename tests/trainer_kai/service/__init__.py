"""Tests of trainer_kai.service."""
