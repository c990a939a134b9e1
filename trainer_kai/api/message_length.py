"""Messages of Events and conditions: no longer than the API server takes in an Event."""

from typing import Final

__all__ = ["truncated_message"]

_LONGEST: Final = 1024  # bytes, in the API's validation of Events; conditions keep to it as well
_MORE: Final = "…"


def truncated_message(message: str) -> str:
    """Cut a message to 1 KiB, between two characters: names in it are as long as users like."""
    data = message.encode(errors="replace")
    if len(data) <= _LONGEST:
        return data.decode()
    return data[: _LONGEST - len(_MORE.encode())].decode(errors="ignore") + _MORE
