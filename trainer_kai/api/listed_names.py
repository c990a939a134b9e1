"""A list of names in a message: the first ones, and the number of the others."""

from collections.abc import Sequence


def listed_names(names: Sequence[str], most: int) -> str:
    """Return at most *most* names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
