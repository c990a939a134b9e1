"""Keeps PodGroups in line with the JobSets that Trainer creates.

Pure by default: only modules named `reconcile` and `__main__` may wait. It never binds or evicts.
"""
