"""Why nobody loses anything for a unit that may claim it, in sentences."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from scheduler.core.decision import Rejection
from scheduler.core.model import Snapshot

__all__ = ["why_kept"]

_LAST: Final = 253_402_300_799  # the last second that a date has a name for


def why_kept(snapshot: Snapshot, rejection: Rejection) -> Iterator[str]:
    """Yield what keeps others from losing anything, as far as anything does."""
    if rejection.kept.is_patient:
        unit = snapshot.units[rejection.unit]
        words = f" of {unit.patience}" if unit.patience else ""
        until = _moment(unit.patient_until)
        when = f"before {until}, when its preemptionDelay{words} is over"
        yield f"It takes nothing from others {when}"


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
