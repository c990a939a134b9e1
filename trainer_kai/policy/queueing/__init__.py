"""Which queue and which priority a workload gets, and which namespaces may use a queue."""
