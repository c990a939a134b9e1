"""Pods of PodGroups that leave with their node, and how often a PodGroup is moved for that.

What is listed as leaving is a property of the node. That a node is being emptied is seen on its
pods: it is cordoned, and one of them was evicted through the API (`kubectl drain`). Such a pod may
be gone before the next plan, so it is noted when it is seen.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.core.model.podgroup import Departure
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import EMPTIED
from scheduler.state.inputs import ApiEviction, epoch_s
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.pods.pod_table import PodTable
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import POD_GROUP
from trainer_kai.api.pod import Pod
from trainer_kai.policy.podgroups.eviction_record import last_eviction_of

BEGUN_S: Final = 60  # a PodGroup that is not short of the pod by then was repaired
_FIRST_PAUSE_S: Final = 300
_MAX_PAUSE_S: Final = 6 * 3600


def is_api_evicted(pod: Pod) -> bool:
    """Say whether the eviction API asked for the end of a pod."""
    return any(
        one.type == "DisruptionTarget"
        and one.reason == "EvictionByEvictionAPI"
        and one.status == "True"
        for one in pod.status.conditions
    )


def api_evictions_of(pods: Mapping[Key, Pod], now: int) -> Iterator[tuple[Key, ApiEviction]]:
    """Yield the PodGroups of pods that terminate because of the eviction API."""
    for key, pod in pods.items():
        if pod.metadata.deletion_timestamp and is_api_evicted(pod):
            group = Key(key.namespace, pod.metadata.annotations.get(POD_GROUP, ""))
            yield group, ApiEviction(key.name, pod.spec.node_name, now)


def leaving_pods(record: PodGroupRecord, podset: str, pod_table: PodTable) -> list[int]:
    nodes, node_of = pod_table.nodes, pod_table.node
    if not nodes.leaving:
        return []
    rows = {nodes.row_of(name) for name in nodes.leaving} - {NONE}
    return [pod for pod in record.running_pods(podset, pod_table) if int(node_of[pod]) in rows]


def departure_of(
    record: PodGroupRecord, pod_table: PodTable, evictions: Mapping[Key, ApiEviction]
) -> Departure | None:
    if record.group is None:
        return None
    nodes = pod_table.nodes
    names = record.min_members if nodes.leaving else ()
    pods = [it for name in names for it in leaving_pods(record, name, pod_table)]
    evicted = evictions.get(record.key)
    if evicted is not None and _is_emptied(evicted, pod_table):
        sign = nodes.leaving.get(evicted.node)
        begin = f"node {evicted.node} " + (f"leaves: {sign.cause}, and" if sign else "is drained:")
        reason = f"{begin} pod {evicted.pod}, which the PodGroup needs, was evicted from it"
        return Departure(reason, evicted.at + BEGUN_S, _not_before(record.group))
    if not pods:
        return None
    left = sorted({nodes.names[int(pod_table.node[it])] for it in pods})
    more = f", as {len(left) - 1} more of its nodes do" if left[1:] else ""
    reason = f"node {left[0]} leaves{more}: {nodes.leaving[left[0]].cause}"
    is_notice = any(nodes.leaving[name].is_notice for name in left)
    return Departure(reason, 0, _not_before(record.group), is_notice)


def _is_emptied(evicted: ApiEviction, pod_table: PodTable) -> bool:
    """Say whether a node takes no pods by intent, or is gone by now."""
    row = pod_table.nodes.row_of(evicted.node)
    return row == NONE or int(pod_table.nodes.faults[row]) in EMPTIED


def _not_before(group: PodGroup) -> int:
    """Return before when a PodGroup is not moved again, in seconds since 1970.

    A node that only seems to leave, again and again, must not move it again and again.
    """
    last = last_eviction_of(group)
    moved = last.moved if last is not None else None
    moved_at = epoch_s(moved.at) if moved else None
    if not moved or moved_at is None:
        return 0
    doublings = min(max(moved.count - 1, 0), 16)
    return moved_at + min(_FIRST_PAUSE_S << doublings, _MAX_PAUSE_S)
