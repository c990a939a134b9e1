"""Evicts what a plan decided: suspends workloads, deletes other pods, and limits the rate."""
