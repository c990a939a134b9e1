"""What groups say of time: how long they are patient."""

from typing import Final

from scheduler.state.terms import epoch_s
from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import LAST_EVICTION

__all__ = ["patient_until", "seconds_of"]

_SECOND: Final = 10**9  # nanoseconds


def patient_until(meta: Meta, delay: str) -> int:
    """Return before when a group takes nothing from others, in seconds since 1970; 0 is never.

    It counts from when it was made, or lost its place last.
    """
    delay_s = seconds_of(delay)
    if delay_s <= 0:
        return 0
    made_s = epoch_s(meta.creation_timestamp) or 0
    evicted_s = epoch_s(meta.annotations.get(LAST_EVICTION, "")) or 0
    return max(made_s, evicted_s) + delay_s


def seconds_of(duration: str) -> int:
    """Return a duration in whole seconds, rounded up; 0 for none, and for what is none."""
    try:
        return -(-nanoseconds(duration) // _SECOND) if duration else 0
    except DurationError:
        return 0
