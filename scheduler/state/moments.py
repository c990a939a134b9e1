"""What objects say of time: how long units are patient, and since when they run."""

from typing import Final

from scheduler.core.model import NONE
from scheduler.state.gang import PodGroupRecord
from scheduler.state.roll import RUNNING, PodTable
from scheduler.state.terms import epoch_s
from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import LAST_EVICTION, LAST_START
from trainer_kai.api.pod import Pod

__all__ = ["duration_s", "preemption_delay_until", "running_since", "scheduled_at"]

_NANOSECONDS: Final = 10**9  # nanoseconds


def preemption_delay_until(meta: Meta, delay: str) -> int:
    """Return before when a group takes nothing from others, in seconds since 1970; 0 is never.

    It counts from when it was made, or lost its place last.
    """
    delay_s = duration_s(delay)
    if delay_s <= 0:
        return 0
    made_s = epoch_s(meta.creation_timestamp) or 0
    evicted_s = epoch_s(meta.annotations.get(LAST_EVICTION, "")) or 0
    return max(made_s, evicted_s) + delay_s


def running_since(record: PodGroupRecord, pod_table: PodTable) -> int:
    """Return when a gang began to run, in seconds since 1970; 0 if it does not, or nobody says.

    Where that is not written on its group, the pod that has its place for longest tells it: those
    that join later, or come back, do not make it begin anew.
    """
    if not any(record.count_of(podset, RUNNING) for podset in record.min_members):
        return 0
    written = (
        epoch_s(record.group.metadata.annotations.get(LAST_START, "")) if record.group else None
    )
    if written:
        return written
    is_counted, state = pod_table.class_table.is_counted, pod_table.state
    return min(
        (
            scheduled
            for pod_class in record.pod_classes
            if is_counted[pod_class.number]
            for pod_row in pod_class.pod_rows
            if state[pod_row] == RUNNING and (scheduled := scheduled_at(pod_table.pod(pod_row)))
        ),
        default=0,
    )


def scheduled_at(pod: Pod) -> int:
    """Return when a pod got its node, in seconds since 1970; 0 if nobody says."""
    for one in pod.status.conditions:
        if one.type == "PodScheduled":
            return (epoch_s(one.last_transition_time or "") or 0) if one.status == "True" else 0
    return 0


def duration_s(duration: str) -> int:
    """Return a duration in whole seconds, rounded up; NONE where it is not said, or is none."""
    try:
        return max(-(-nanoseconds(duration) // _NANOSECONDS), 0) if duration else NONE
    except DurationError:
        return NONE
