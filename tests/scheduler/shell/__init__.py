"""The shell of the scheduler."""
