"""Keeps PodGroups in line with the JobSets that Trainer creates.

Pure by default: only `reconcile` and `__main__` may wait. Never binds or evicts a pod.
"""
