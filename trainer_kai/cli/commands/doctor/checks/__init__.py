"""The checks: facts in, findings out. They know neither clock nor cluster."""
