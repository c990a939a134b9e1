"""`trainer-kai doctor`: facts are read first, then pure checks turn them into findings."""
