"""Evicts what a plan decided: suspends TrainJobs, deletes other pods, and limits the rate."""
