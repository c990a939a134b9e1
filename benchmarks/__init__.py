"""Benchmarks with a command each: speed against a floor measured in the same run."""
