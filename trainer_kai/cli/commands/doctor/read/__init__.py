"""Read the facts from a cluster: reads, access reviews and dry runs."""
