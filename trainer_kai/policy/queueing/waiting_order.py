"""The order in which waiting PodGroups of one queue are attempted, from what the cluster states.

It is rule 19 of docs/rules.md with what the objects show: the scheduler knows more of rule 19a, and
says so in its reasons. A PodGroup that is not attempted, because something other than room is
missing, has no place.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.reasons import SCHEDULER_REASONS, UnschedulableReason
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses

_ATTEMPTED: Final = frozenset(
    {
        UnschedulableReason.EXCEEDS_LIMIT,
        UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA,
        UnschedulableReason.NO_NODE_MATCHES,
        UnschedulableReason.FRAGMENTED,
        UnschedulableReason.NO_CAPACITY,
        UnschedulableReason.PREEMPTION_DELAY,
        UnschedulableReason.WAITING_FOR_VICTIMS,
    }
)
_PAUSED: Final = UnschedulableReason.SCHEDULER_PAUSED
_NEVER: Final = "can never start"

_OrderKey: TypeAlias = tuple[bool, int, bool, str, str]


class WrittenReason(NamedTuple):
    """Why a PodGroup waits, as the scheduler has written it."""

    title: str
    message: str
    since: str  # RFC 3339; "" if it is not known


class Place(NamedTuple):
    position: int  # from 1 on
    waiting: int  # PodGroups of the queue that have a place

    def __str__(self) -> str:
        return f"{self.position}/{self.waiting}"


def written_reason(group: PodGroup) -> WrittenReason | None:
    """Return the reason of a PodGroup that waits: ours, or else that of another scheduler."""
    conditions = group.status.scheduling_conditions
    for it in reversed(conditions):
        for one in reversed(it.reasons):
            if one.reason in SCHEDULER_REASONS or one.reason == _PAUSED:
                return WrittenReason(one.reason, one.message or it.message, it.last_transition_time)
    if not conditions:
        return None
    last = conditions[-1]
    title = last.reasons[-1].reason if last.reasons else last.reason or last.type
    return WrittenReason(title, last.message, last.last_transition_time)


def waiting_places(
    groups: Iterable[PodGroup], classes: Mapping[str, PriorityClass]
) -> dict[Key, Place]:
    """Return the places of all PodGroups that wait for room, each in its queue."""
    priorities = SelectablePriorityClasses(classes)
    by_queue: dict[str, list[tuple[_OrderKey, Key]]] = {}
    for group in groups:
        reason = written_reason(group)
        if reason is not None and reason.title in _ATTEMPTED:
            key = _order_key(group, reason, priorities)
            by_queue.setdefault(group.spec.queue, []).append((key, group.metadata.key))
    places = {}
    for waiting in by_queue.values():
        waiting.sort()
        for position, (_, podgroup) in enumerate(waiting, 1):
            places[podgroup] = Place(position, len(waiting))
    return places


def _order_key(
    group: PodGroup, reason: WrittenReason, priorities: SelectablePriorityClasses
) -> _OrderKey:
    never = reason.title == UnschedulableReason.NO_NODE_MATCHES or _NEVER in reason.message
    meta = group.metadata
    return (
        never,
        -priorities.value(group.spec.priority_class_name),
        reason.title != UnschedulableReason.WAITING_FOR_VICTIMS,  # nominated
        meta.creation_timestamp,
        meta.uid,
    )
