"""Tests of webhook.reviews."""
