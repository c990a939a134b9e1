"""PodGroups that grew by a resize in place: what exceeds the quota of a queue can be reclaimed.

A non-preemptible PodGroup gets no more than the quotas of its queues have, and keeps it. A resize
happens on the node and asks no queue. So where non-preemptible PodGroups have more CPU or memory
than a quota, those with a resized pod count as preemptible, the newest first, until the rest is
within the quota; first those of the queue itself, then those of the queues beside it below the
same parent. The record of a resize is the generation of the pod, which no client can lower;
every other change of a spec raises it as well.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.resources import NONE, RESOURCE_KINDS, UNBOUND, ResourceKind, cut
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage, allocated_by_podgroup

_RESIZABLE: Final = (ResourceKind.CPU, ResourceKind.MEMORY)


def with_reclaimable_resizes(snapshot: Snapshot, resized: Collection[int]) -> Snapshot:
    """Return a snapshot in which no PodGroup of resized pods exceeds a quota for ever."""
    rows = {int(snapshot.pods.podgroup[pod]) for pod in resized} - {NONE}
    fixed = [row for row in sorted(rows, reverse=True) if _is_fixed(snapshot.podgroups[row])]
    if not fixed:
        return snapshot
    usage = Usage(snapshot.queues)
    if not any(_exceeding(usage, snapshot.podgroups[row].queue) for row in fixed):
        return snapshot
    podgroups = [*snapshot.podgroups]
    allocated, _ = allocated_by_podgroup(snapshot)

    def release(row: int) -> None:
        for each in _evicted_together(podgroups, row):
            queue, (cpu, memory, gpu) = podgroups[each].queue, allocated[each]
            podgroups[each] = replace(podgroups[each], is_preemptible=True)
            usage.refund(queue, (cpu, memory, gpu), is_non_preemptible=True)
            usage.charge(queue, (cpu, memory, gpu), is_non_preemptible=False)

    # First the queues whose own quota is exceeded: their siblings do not pay for them.
    for is_own in (True, False):
        for row in fixed:
            queue = podgroups[row].queue
            exceeding = _exceeding(usage, queue)
            if _is_fixed(podgroups[row]) and (queue in exceeding if is_own else exceeding):
                release(row)
    non_preemptible = cut(usage.non_preemptible, len(RESOURCE_KINDS))
    queues = replace(snapshot.queues, non_preemptible=non_preemptible)
    return replace(snapshot, podgroups=tuple(podgroups), queues=queues)


def _is_fixed(podgroup: PodGroupInfo) -> bool:
    return not podgroup.is_preemptible and podgroup.queue != NONE


def _exceeding(usage: Usage, queue: int) -> list[int]:
    """Return which of a queue and those above it have more than their quota."""
    return [
        q
        for q in usage.paths[queue]
        if any(
            usage.non_preemptible[q][kind] > usage.quota[q][kind] != UNBOUND for kind in _RESIZABLE
        )
    ]


def _evicted_together(podgroups: Sequence[PodGroupInfo], row: int) -> list[int]:
    """Return a PodGroup, and the others of its JobSet, that are non-preemptible."""
    jobset = podgroups[row].owning_jobset
    rows = [row] if not jobset else range(len(podgroups))
    return [it for it in rows if podgroups[it].owning_jobset == jobset and _is_fixed(podgroups[it])]
