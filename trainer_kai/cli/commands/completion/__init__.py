"""`trainer-kai completion`: completion of commands and flags in a shell."""
