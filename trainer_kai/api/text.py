"""What messages have in common: lists of names, and the length that the API server admits."""

from collections.abc import Sequence
from typing import Final


def listed_names(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


_LONGEST: Final = 1024  # bytes, from the API's validation of Events; we use it for conditions too
_MORE: Final = "…"


def truncated_message(message: str) -> str:
    """Cut a message to 1 KiB between two characters; names of users can make it long."""
    data = message.encode(errors="replace")
    if len(data) <= _LONGEST:
        return data.decode()
    return data[: _LONGEST - len(_MORE.encode())].decode(errors="ignore") + _MORE
