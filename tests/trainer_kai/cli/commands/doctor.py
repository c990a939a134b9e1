"""Tests of `trainer-kai doctor`."""
