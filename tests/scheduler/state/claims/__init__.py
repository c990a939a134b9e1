"""Tests of ResourceClaims in the state."""
