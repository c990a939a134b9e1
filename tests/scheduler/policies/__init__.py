"""Tests of what a site may choose."""
