"""Evictions: those in flight, Jobs that are recreated for them, and suspended TrainJobs."""
