"""What is checked of queues: access, deletion, their numbers, and workloads that exceed a quota."""
