"""Admission: validates TrainJobs, completes JobSets, and adds pods to their PodGroups.

Pure by default: only the modules that pyproject.toml names as shell may wait. Never imports the
scheduler.
"""
