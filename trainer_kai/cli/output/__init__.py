"""Tables for the terminal that several commands print."""
