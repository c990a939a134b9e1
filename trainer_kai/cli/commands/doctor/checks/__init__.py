"""The checks: facts in, findings out. They use no clock and no cluster."""
