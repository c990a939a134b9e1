"""Tests of the verbs of `trainer-kai queue`."""
