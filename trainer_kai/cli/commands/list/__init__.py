"""`trainer-kai list`: the workloads of a cluster, one a row."""
