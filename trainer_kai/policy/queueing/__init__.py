"""Which queue and which priority a workload gets, and who may use a queue."""
