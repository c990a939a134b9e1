"""Every workload that KAI groups, on the chain, with stand-ins for operators and real ones."""
