"""What must come of clusters written down by hand: each file of `tests/cases` shows one rule."""
