"""Admission: checks TrainJobs, fills in JobSets, marks pods.

Pure by default: only the modules that pyproject.toml names as shell may wait. It never meets the
scheduler.
"""
