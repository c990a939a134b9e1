"""Keeps PodGroups in line with the workloads that need them.

Pure by default: only `reconcile` and `__main__` may wait. Never binds or evicts a pod.
"""
