"""Tests of webhook.rules."""
