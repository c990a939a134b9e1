"""The length limit for messages of Events and conditions: the API server's limit for Events."""

from typing import Final

_LONGEST: Final = 1024  # bytes, from the API's validation of Events; we use it for conditions too
_MORE: Final = "…"


def truncated_message(message: str) -> str:
    """Cut a message to 1 KiB between two characters; names of users can make it long."""
    data = message.encode(errors="replace")
    if len(data) <= _LONGEST:
        return data.decode()
    return data[: _LONGEST - len(_MORE.encode())].decode(errors="ignore") + _MORE
