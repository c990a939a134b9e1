"""Objects and changes for the tests of the scheduler's state."""
