"""Times of objects as ages, such as 5m: for tables and sentences."""

from datetime import datetime
from typing import Final

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def age_text(now: datetime, since: datetime) -> str:
    """Return a duration; clocks differ, so the difference may be slightly negative."""
    seconds = max(int((now - since).total_seconds()), 0)
    length, suffix = next((it for it in _UNITS if seconds >= it[0]), _UNITS[-1])
    return f"{seconds // length}{suffix}"


def age_of(text: str, now: datetime) -> str:
    """Return the age of a time of the API; "" for another text."""
    try:
        since = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return age_text(now, since) if since.tzinfo else ""
