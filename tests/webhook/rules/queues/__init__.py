"""The rules of queues: deletion, changes, and workloads that exceed a quota."""
