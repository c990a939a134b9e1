"""Lint: what is wrong with a TrainJob before it is created; the entry points of the rules."""
