"""The state after a plan: what queues use and request, and the free GPUs of nodes.

All decisions are applied, and evictions are in progress: an evicted pod still occupies its node,
and a nominated pod counts against the resources that it will release.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.podgroup import ReservedPlace, domain_constraints, podsets_of
from scheduler.core.model.resources import Ints, ResourceKind
from scheduler.core.model.snapshot import NodeFault, PodState, Snapshot
from scheduler.core.nodes.strategies.idle_gpus import UnusableGpus, unusable_gpus
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.gpu_requests import WHOLE_GPU
from trainer_kai.api.meta import Key
from trainer_kai.api.names import MIG_PREFIX
from trainer_kai.cli.output.node_bars import GpuShare, MigProfile, NodeGpus, SharedGpu
from trainer_kai.cli.output.queue_tables import QueueAmounts

_FAULTS: Final[Mapping[int, str]] = {
    NodeFault.NO_NETWORK: "without network",
    NodeFault.PRESSURE: "under pressure",
    NodeFault.NOT_READY: "not ready",
    NodeFault.CORDONED: "cordoned",
    NodeFault.LEAVING: "leaving",
}


class NominatedPods(NamedTuple):
    nodes: Mapping[Key, str]
    gpu_groups: Mapping[Key, Sequence[str]]  # the shared GPUs that they get there


@dataclass(slots=True)
class _Device:
    """A GPU that pods share, in 1/1000 GPU."""

    used: int = 0  # without nominated pods
    releasing: int = 0
    reserved: int = 0
    shares: list[GpuShare] = field(default_factory=list)
    nominated: list[GpuShare] = field(default_factory=list)
    is_releasing: bool = False  # all of it, apart from nominated pods

    def drawn(self) -> SharedGpu:
        """Return it with what is left; nominated pods get what is being released first."""
        running, waiting = (sum(it.amount for it in own) for own in (self.shares, self.nominated))
        idle, releasing = max(WHOLE_GPU - self.used, 0), self.releasing
        if self.is_releasing:
            idle, releasing = 0, WHOLE_GPU - self.used + self.releasing
        idle = max(idle - max(waiting - releasing, 0), 0)
        return SharedGpu(
            shares=(*sorted(self.shares), *sorted(self.nominated)),
            idle=idle,
            releasing=max(releasing - waiting, 0),
            reserved=self.reserved,
            other=max(self.used - self.releasing - running - self.reserved, 0),
        )


class EndState(NamedTuple):
    """The state of all nodes and queues, sorted by name."""

    nodes: tuple[NodeGpus, ...]
    queues: tuple[QueueAmounts, ...]
    unusable: UnusableGpus = UnusableGpus(0, {})


def end_state(
    encoded: EncodedSnapshot, nominated: NominatedPods, fair_share: Ints, queues: Iterable[str]
) -> EndState:
    """Return the state of a snapshot in which the plan is applied.

    *fair_share* has a row for each of *queues*.
    """
    releasing, requested = _without_nominated(encoded, nominated.nodes)
    shares = dict(zip(queues, fair_share.tolist(), strict=True))
    nodes = _node_gpus(encoded, nominated, releasing)
    queue_amounts = _queue_amounts(encoded, requested, shares)
    return EndState(nodes, queue_amounts, unusable_gpus(encoded.snapshot))


def _without_nominated(encoded: EncodedSnapshot, nominated: Mapping[Key, str]) -> tuple[Ints, Ints]:
    """Return what nodes release and queues request, without the requests of nominated pods."""
    snapshot = encoded.snapshot
    releasing = snapshot.nodes.releasing.copy()
    requested = snapshot.queues.requested.copy()
    node_at = {name: row for row, name in enumerate(snapshot.nodes.names)}
    rows = (
        (row for row, key in enumerate(encoded.pod_keys) if key in nominated) if nominated else ()
    )
    for row in rows:
        signature = snapshot.signatures[snapshot.pods.signature[row]]
        releasing[node_at[nominated[encoded.pod_keys[row]]]] -= np.array(signature.request)
        queue = snapshot.podgroups[snapshot.pods.podgroup[row]].queue
        while queue >= 0:
            requested[queue] -= np.array(signature.queue_request)
            queue = snapshot.queues.parent[queue]
    return releasing, requested


def _node_gpus(
    encoded: EncodedSnapshot, nominated: NominatedPods, releasing: Ints
) -> tuple[NodeGpus, ...]:
    snapshot, idle = encoded.snapshot, encoded.snapshot.nodes.idle.copy()
    shared = {
        node: _without_shared(devices, idle[node], releasing[node], column)
        for node, devices in _shared_gpus(encoded, nominated).items()
        for column in _gpu_column(snapshot, node)
    }
    allocatable, reserved_amounts = snapshot.nodes.allocatable, _reserved_amounts(snapshot)
    columns = (allocatable, *_balanced(idle, releasing), reserved_amounts)
    whole = [column[:, list(snapshot.resources.gpus)].sum(axis=1).tolist() for column in columns]
    profiles, faults = _mig_columns(snapshot), snapshot.nodes.fault.tolist()
    domains = _domain_names(snapshot)
    return tuple(
        NodeGpus(
            name=name,
            total=max(total - WHOLE_GPU * len(shared.get(node, ())), 0),
            idle=whole_idle,
            releasing=whole_releasing,
            reserved=reserved,
            fault=_FAULTS.get(faults[node], ""),
            shared=tuple(it.drawn() for it in shared.get(node, ())),
            profiles=tuple(
                MigProfile(profile, weight, *(int(column[node, r]) for column in columns))
                for r, profile, weight in profiles
                if allocatable[node, r]
            ),
            domain=domains[node] if domains else None,
        )
        for node, (name, total, whole_idle, whole_releasing, reserved) in enumerate(
            zip(snapshot.nodes.names, *whole, strict=True)
        )
    )


def _domain_names(snapshot: Snapshot) -> list[str]:
    """Return the domains of the nodes, if a PodGroup has a constraint of topology.

    They are those of the first Topology in use, of the narrowest level that is required or
    preferred.
    """
    used = _used_level(snapshot)
    if used is None:
        return []
    first, level = used
    topology = snapshot.topologies[first]
    names = ["/".join(path) for path in topology.paths[level]]
    return [names[it] if it >= 0 else "" for it in topology.domains[level].tolist()]


def domain_levels(encoded: EncodedSnapshot) -> dict[Key, str]:
    """Return of which level the domains of the nodes are, for PodGroups with such a constraint."""
    snapshot = encoded.snapshot
    used = _used_level(snapshot)
    if used is None:
        return {}
    first, level = used
    topology = snapshot.topologies[first]
    text = f"level {topology.levels[level]} of Topology {topology.name}"
    return {
        key: text
        for key, one in zip(encoded.podgroup_keys, snapshot.podgroups, strict=True)
        if any(it.topology == first for it in domain_constraints(one.tree))
    }


def _used_level(snapshot: Snapshot) -> tuple[int, int] | None:
    used = [it for one in snapshot.podgroups for it in domain_constraints(one.tree)]
    if not used:
        return None
    first = min(it.topology for it in used)
    return first, max(it.base for it in used if it.topology == first)


def _gpu_column(snapshot: Snapshot, node: int) -> list[int]:
    """Return the resource of the whole GPUs of a node; none if it has no GPUs, whatever runs."""
    gpus = snapshot.resources.gpus
    return [it for it in gpus if snapshot.nodes.allocatable[node, it] > 0][:1]


def _without_shared(
    devices: list[_Device], idle: Ints, releasing: Ints, column: int
) -> list[_Device]:
    """Take the shared GPUs of a node out of its whole ones; return them.

    A GPU of which all shares are terminating is whole again if a pod with whole GPUs is nominated
    to it. GPUs that nominated pods share first were whole ones, or such GPUs.
    """
    known, new = [it for it in devices if it.used], [it for it in devices if not it.used]
    ending = [it for it in known if it.is_releasing]
    left = min(max(int(releasing[column]) // WHOLE_GPU, 0), len(ending))
    known = [it for it in known if not any(it is whole for whole in ending[left:])]
    ending = ending[:left]
    releasing[column] -= WHOLE_GPU * left
    for device in new:
        if releasing[column] >= WHOLE_GPU:
            releasing[column] -= WHOLE_GPU
            device.is_releasing = True
        elif ending:
            ending.pop(0).nominated = device.nominated
            continue
        else:
            idle[column] -= WHOLE_GPU
        known.append(device)
    return known


def _shared_gpus(encoded: EncodedSnapshot, nominated: NominatedPods) -> dict[int, list[_Device]]:
    """Return the shared GPUs by node: those of the snapshot, then those of nominated pods."""
    snapshot, devices = encoded.snapshot, encoded.snapshot.devices
    by_node: dict[int, list[_Device]] = {}
    by_id: dict[tuple[int, str], _Device] = {}
    columns = (it.tolist() for it in (devices.node, devices.used, devices.releasing))
    for name, node, used, releasing in zip(devices.ids, *columns, strict=True):
        by_id[node, name] = device = _Device(used, releasing, is_releasing=releasing >= used)
        by_node.setdefault(node, []).append(device)
    for row, slots in devices.slots_of_pod.items():
        node, state = int(snapshot.pods.node[row]), snapshot.pods.state[row]
        if state not in (PodState.RELEASING, PodState.STUCK_RELEASING):
            amount = _share_of(snapshot, int(snapshot.pods.signature[row]), node)
            for slot in slots:
                by_node[node][slot].shares.append(GpuShare(str(encoded.pod_keys[row]), amount))
    for place in _reserved_places(snapshot):
        for slot in place.slots:
            amount = _share_of(snapshot, place.signature, place.node)
            by_node[place.node][slot].reserved += amount
    for node, name, share in _nominated_shares(encoded, nominated):
        if (node, name) not in by_id:
            by_id[node, name] = _Device()
            by_node.setdefault(node, []).append(by_id[node, name])
        by_id[node, name].nominated.append(share)
    return by_node


def _nominated_shares(
    encoded: EncodedSnapshot, nominated: NominatedPods
) -> Iterator[tuple[int, str, GpuShare]]:
    snapshot = encoded.snapshot
    row_of = {key: row for row, key in enumerate(encoded.pod_keys)} if nominated.gpu_groups else {}
    node_at = {name: row for row, name in enumerate(snapshot.nodes.names)}
    for key, gpu_groups in sorted(nominated.gpu_groups.items()):
        node = node_at[nominated.nodes[key]]
        amount = _share_of(snapshot, int(snapshot.pods.signature[row_of[key]]), node)
        for gpu_group in gpu_groups:
            yield node, gpu_group, GpuShare(str(key), amount, is_nominated=True)


def _share_of(snapshot: Snapshot, signature: int, node: int) -> int:
    """Return the thousandths of each of its GPUs that a pod has on a node."""
    it = snapshot.signatures[signature]
    memory = int(snapshot.nodes.gpu_memory[node])
    if it.device_share or not memory:
        return it.device_share
    return -(-100 * it.device_memory // memory) * 10


def _reserved_places(snapshot: Snapshot) -> Iterator[ReservedPlace]:
    for podgroup in snapshot.podgroups:
        for podset in podsets_of(podgroup.tree):
            yield from podset.reserved_places


def _reserved_amounts(snapshot: Snapshot) -> Ints:
    """Return what is reserved on each node, [node, resource]."""
    reserved = np.zeros_like(snapshot.nodes.idle)
    for place in _reserved_places(snapshot):
        reserved[place.node] += np.array(snapshot.signatures[place.signature].request)
    return reserved


def _mig_columns(snapshot: Snapshot) -> list[tuple[int, str, int]]:
    resources = snapshot.resources
    return [
        (r, name.removeprefix(MIG_PREFIX), resources.weights[r])
        for r, name in enumerate(resources.names)
        if name.startswith(MIG_PREFIX)
    ]


def _balanced(idle: Ints, releasing: Ints) -> tuple[Ints, Ints]:
    """Return idle and releasing amounts, each at least 0 if the other can cover it."""
    idle, releasing = idle + np.minimum(releasing, 0), np.maximum(releasing, 0)
    shortfall = np.clip(-idle, 0, releasing)
    return idle + shortfall, releasing - shortfall


def _queue_amounts(
    encoded: EncodedSnapshot, requested: Ints, shares: Mapping[str, list[float]]
) -> tuple[QueueAmounts, ...]:
    queues = encoded.snapshot.queues
    columns = (queues.quota, queues.limit, queues.allocated, requested)
    quota, limit, allocated, requested_amounts = (
        [*map(tuple, column.tolist())] for column in columns
    )
    nothing = (0.0,) * len(ResourceKind)
    return tuple(
        sorted(
            QueueAmounts(
                name=name,
                parent=queues.names[queues.parent[row]] if queues.parent[row] >= 0 else "",
                quota=quota[row],
                limit=limit[row],
                fair_share=tuple(shares.get(name, nothing)),
                allocated=allocated[row],
                requested=requested_amounts[row],
                is_quota_only=bool(queues.is_quota_only) and queues.is_quota_only[row],
            )
            for row, name in enumerate(queues.names)
        )
    )
