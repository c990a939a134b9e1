"""`trainer-kai simulate`: the scheduler's plan for a cluster that is in files."""
