"""What objects say of time: how long units are patient, and since when they run."""

from typing import Final

from scheduler.core.model import NONE
from scheduler.state.gang import Gang
from scheduler.state.roll import THERE, Roll
from scheduler.state.terms import epoch_s
from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import LAST_EVICTION, LAST_START
from trainer_kai.api.pod import Pod

__all__ = ["patient_until", "placed_at", "said_s", "since"]

_SECOND: Final = 10**9  # nanoseconds


def patient_until(meta: Meta, delay: str) -> int:
    """Return before when a group takes nothing from others, in seconds since 1970; 0 is never.

    It counts from when it was made, or lost its place last.
    """
    delay_s = said_s(delay)
    if delay_s <= 0:
        return 0
    made_s = epoch_s(meta.creation_timestamp) or 0
    evicted_s = epoch_s(meta.annotations.get(LAST_EVICTION, "")) or 0
    return max(made_s, evicted_s) + delay_s


def since(gang: Gang, roll: Roll) -> int:
    """Return when a gang began to run, in seconds since 1970; 0 if it does not, or nobody says.

    Where that is not written on its group, the pod that has its place for longest tells it: those
    that join later, or come back, do not make it begin anew.
    """
    if not any(gang.of(leaf, THERE) for leaf in gang.minima):
        return 0
    written = epoch_s(gang.group.metadata.annotations.get(LAST_START, "")) if gang.group else None
    if written:
        return written
    counts, state = roll.kins.counts, roll.state
    return min(
        (
            at
            for kin in gang.kins
            if counts[kin.number]
            for slot in kin.slots
            if state[slot] == THERE and (at := placed_at(roll.pod(slot)))
        ),
        default=0,
    )


def placed_at(pod: Pod) -> int:
    """Return when a pod got its node, in seconds since 1970; 0 if nobody says."""
    for one in pod.status.conditions:
        if one.type == "PodScheduled":
            return (epoch_s(one.last_transition_time or "") or 0) if one.status == "True" else 0
    return 0


def said_s(duration: str) -> int:
    """Return a duration in whole seconds, rounded up; NONE where it is not said, or is none."""
    try:
        return max(-(-nanoseconds(duration) // _SECOND), 0) if duration else NONE
    except DurationError:
        return NONE
