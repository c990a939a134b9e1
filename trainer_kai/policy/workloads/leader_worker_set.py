"""LeaderWorkerSets: each of their groups is a PodGroup of its own, with KAI's names.

The sub-groups are leader and workers, or segments of equal size as the sub-group policy or the
annotation asks for. Where the workers are created only after their leader is ready, they are pods
that come later: their place is kept, and the leader does not wait for them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from trainer_kai.api.bounds import MOST_GROUPS
from trainer_kai.api.leader_worker_set import LeaderWorkerSet, LeaderWorkerTemplate
from trainer_kai.api.names import LWS_GROUP_INDEX, LWS_NAME, LWS_WORKER_INDEX
from trainer_kai.api.resources import LEADER_WORKER_SETS
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.workloads.roles import (
    ObjectState,
    PodRole,
    checked_segment_size,
    roles_kind,
    roles_workload,
    segment_size,
    segment_topology,
    segments,
    topology_of,
)
from trainer_kai.policy.workloads.workload import (
    PodGroupShape,
    PodPlace,
    RolePaths,
    SubGroupShape,
    Workload,
)

_LEADER: Final = "leader"
_WORKER: Final = "worker"
_WORKERS: Final = "workers"
_SEGMENT: Final = "segment"
_PATH: Final = "spec.leaderWorkerTemplate"
_SUB_GROUP_SIZE: Final = f"{_PATH}.subGroupPolicy.subGroupSize"
_EXCLUDED: Final = "LeaderExcluded"


def leader_worker_set_workload(lws: LeaderWorkerSet) -> Workload:
    faults: list[Finding] = []
    template = lws.spec.leader_worker_template
    of_workers = RolePaths(f"{_PATH}.workerTemplate", f"{_PATH}.size")
    leader = PodRole(_LEADER, 1, template.worker_template, of_workers)
    if template.leader_template is not None:
        own = of_workers._replace(template=f"{_PATH}.leaderTemplate")
        leader = PodRole(_LEADER, 1, template.leader_template, own)
    workers = PodRole(_WORKER, max(template.size - 1, 0), template.worker_template, of_workers)
    roles = (leader, workers) if workers.pods else (leader,)
    subgroups = tuple(_subgroups(lws, leader, workers, faults))
    names, pods = tuple(role.name for role in roles), 1 + workers.pods
    count = max(lws.spec.replicas, lws.status.replicas, 0)
    if count > MOST_GROUPS:
        message = f"{count} groups: those from {MOST_GROUPS} on are in no PodGroup"
        faults.append(Finding("spec.replicas", message))
    shapes = (
        PodGroupShape(f"group-{number}", names, pods, subgroups)
        for number in range(min(count, MOST_GROUPS))
    )
    state = ObjectState(is_suspendable=False)
    return roles_workload(LWS_KIND, lws.metadata, roles, tuple(shapes), state, faults)


def lws_pod_place(labels: Mapping[str, str]) -> PodPlace:
    index = labels.get(LWS_WORKER_INDEX, "0")
    role = _LEADER if index == "0" else _WORKER
    return PodPlace(role, index, (0, 0), f"group-{labels.get(LWS_GROUP_INDEX, '')}")


def _subgroups(
    lws: LeaderWorkerSet, leader: PodRole, workers: PodRole, faults: list[Finding]
) -> Iterator[SubGroupShape]:
    own = lws.metadata.annotations
    topology = topology_of(leader.template.metadata.annotations, own)
    of_leader = SubGroupShape(_LEADER, 1, _LEADER, 0, 1, topology=topology)
    is_later = lws.spec.startup_policy == "LeaderReady"
    size = _segment_size(lws, workers, faults)
    if size is None:
        topology = topology_of(workers.template.metadata.annotations, own)
        parts = [SubGroupShape(_WORKERS, workers.pods, _WORKER, 1, workers.pods, topology=topology)]
        yield from (of_leader, *(it._replace(is_later=is_later) for it in parts if it.pods))
        return
    topology = segment_topology(workers.template.metadata.annotations, own)
    parts = [it._replace(is_later=is_later) for it in _segments(lws, workers, size, topology)]
    if _is_leader_excluded(lws.spec.leader_worker_template):
        yield from (of_leader, *parts)
        return
    first = parts[0]
    below = [of_leader, first._replace(name=_WORKERS)] if first.pods else [of_leader]
    below = [it._replace(parent=first.name, topology={}) for it in below]
    yield SubGroupShape(first.name, len(below), topology=topology)
    yield from (*below, *parts[1:])


def _segments(
    lws: LeaderWorkerSet, workers: PodRole, size: int, topology: Mapping[str, str]
) -> Iterator[SubGroupShape]:
    """Yield the segments without the leader, which is one of the first unless all are full."""
    is_full = workers.pods % size == 0
    if is_full or _is_leader_excluded(lws.spec.leader_worker_template):
        yield from segments(workers, _SEGMENT, size, topology, start=1)
        return
    yield SubGroupShape(f"{_SEGMENT}-0", size - 1, _WORKER, 1, size - 1, topology=topology)
    rest = workers._replace(pods=workers.pods - (size - 1))
    for number, part in enumerate(segments(rest, _SEGMENT, size, topology, start=size), start=1):
        yield part._replace(name=f"{_SEGMENT}-{number}")


def _segment_size(lws: LeaderWorkerSet, workers: PodRole, faults: list[Finding]) -> int | None:
    template, policy = (
        lws.spec.leader_worker_template,
        lws.spec.leader_worker_template.sub_group_policy,
    )
    sources = [
        ("metadata", lws.metadata.annotations),
        (f"{_PATH}.workerTemplate.metadata", workers.template.metadata.annotations),
    ]
    path, size = "metadata", segment_size(workers, sources, faults)
    if policy is not None and policy.sub_group_size is not None:
        path, size = _SUB_GROUP_SIZE, policy.sub_group_size
    if size is None:
        return None
    if not 1 < size <= template.size:
        message = f"ignored: segments of {size} pods must be from 2 up to the size, {template.size}"
        faults.append(Finding(path, message))
        return None
    if _is_leader_excluded(template) and workers.pods % size:
        message = f"ignored: {workers.pods} workers cannot be divided by {size} ({_EXCLUDED})"
        faults.append(Finding(path, message))
        return None
    return checked_segment_size(workers, size, path, faults)


def _is_leader_excluded(template: LeaderWorkerTemplate) -> bool:
    policy = template.sub_group_policy
    return policy is not None and policy.sub_group_policy_type == _EXCLUDED


LWS_KIND: Final = roles_kind(
    LEADER_WORKER_SETS,
    leader_worker_set_workload,
    lws_pod_place,
    name_label=LWS_NAME,
    path=_PATH,
)
