"""The commands of `trainer-kai`, one folder each."""
