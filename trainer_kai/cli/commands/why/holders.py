"""Who holds the room that a workload waits for, and whether a scheduler is there. Pure.

GPUs only: they are what workloads wait for most, and what the status of a PodGroup counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.gpu_requests import gpu_count
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.text import first_listed, noun_form, verb_form
from trainer_kai.cli.output.ages import age_of, age_text
from trainer_kai.policy.podgroups.grouping import workload_name

FOR_ROOM: Final = frozenset(
    {
        UnschedulableReason.EXCEEDS_LIMIT,
        UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA,
        UnschedulableReason.FRAGMENTED,
        UnschedulableReason.NO_CAPACITY,
        UnschedulableReason.PREEMPTION_DELAY,
    }
)
FOR_ROOM_ON_NODES: Final = frozenset(
    {UnschedulableReason.FRAGMENTED, UnschedulableReason.NO_CAPACITY}
)
_OF_QUEUE: Final = re.compile(r"[Qq]ueue (\S+) has a (?:limit|quota) of")
_THOUSAND: Final = 1000
_MAX_NAMED: Final = 3
_RENEWED_OFTEN: Final = timedelta(seconds=15)  # leaders renew every few seconds


class _Holder(NamedTuple):
    gpus: float
    title: str
    queue: str

    def __str__(self) -> str:
        return f"{self.title} of queue {self.queue} ({self.gpus:g})"


def holder_notes(
    message: str, podgroups: Iterable[PodGroup], queues: Mapping[str, Queue]
) -> Iterator[str]:
    """Yield who holds the room, by the message why a PodGroup waits."""
    holders = _holders(podgroups)
    bounded = _OF_QUEUE.search(message)
    if bounded is not None:
        name = bounded[1]
        own = [it for it in holders if name in _path(queues, it.queue)]
        if own:
            yield f"queue {name} uses {_gpus(own)}: {_named(own)}"
        return
    borrowed, borrowers = _borrowed(holders, queues)
    total = sum(it.gpus for it in holders)
    if borrowers:
        yield (
            f"{borrowed:g} of {total:g} used GPUs are borrowed, that is over the quota of their "
            f"queue, by {_named(borrowers)}"
        )
    elif holders:
        yield f"{_gpus(holders)} {verb_form(total, 'are')} used within quotas, by {_named(holders)}"


def _holders(podgroups: Iterable[PodGroup]) -> list[_Holder]:
    """Return what has GPUs, by workload and queue; the largest first."""
    gpus: dict[tuple[str, str], int] = {}
    for group in podgroups:
        number = gpu_count(group.status.resources_status.allocated)
        if number:
            key = workload_name(group.metadata.key), group.spec.queue
            gpus[key] = gpus.get(key, 0) + number
    found = (_Holder(number / _THOUSAND, *key) for key, number in gpus.items())
    return sorted(found, key=lambda it: (-it.gpus, it.title))


def _borrowed(
    holders: Sequence[_Holder], queues: Mapping[str, Queue]
) -> tuple[float, list[_Holder]]:
    """Return how much queues use over their quotas, and what runs in these queues."""
    used: dict[str, float] = {}
    for it in holders:
        used[it.queue] = used.get(it.queue, 0) + it.gpus
    over = {}
    for name, gpus in used.items():
        resources = queues[name].spec.resources if name in queues else None
        quota = float(resources.gpu.quota) if resources else 0.0
        if 0 <= quota < gpus:
            over[name] = gpus - quota
    return sum(over.values()), [it for it in holders if it.queue in over]


def _path(queues: Mapping[str, Queue], name: str) -> dict[str, None]:
    """Return a queue and its ancestors; a circle ends it."""
    path: dict[str, None] = {}
    while name and name not in path:
        path[name] = None
        name = queues[name].spec.parent_queue if name in queues else ""
    return path


def _gpus(holders: Iterable[_Holder]) -> str:
    number = sum(it.gpus for it in holders)
    return f"{number:g} {noun_form(number, 'GPU')}"


def _named(holders: Sequence[_Holder]) -> str:
    return first_listed(map(str, holders), _MAX_NAMED)


def lease_note(leases: Sequence[Lease] | None, now: datetime) -> Iterator[str]:
    """Yield the age of the scheduler's Lease if it is old, before the scheduler counts as gone."""
    for lease in leases or ():
        spec, name = lease.spec, lease.metadata.key
        if not spec.holder_identity or not age_of(spec.renew_time, now):
            continue
        renewed = datetime.fromisoformat(spec.renew_time)
        if now - renewed > _RENEWED_OFTEN:
            holder, age = spec.holder_identity.partition("_")[0], age_text(now, renewed)
            yield (
                f"scheduler {holder} renewed Lease {name} {age} ago; while it runs, it renews the "
                "Lease every few seconds"
            )
