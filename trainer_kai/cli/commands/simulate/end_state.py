"""The state after a plan: what queues use and request, and the free GPUs of nodes.

All decisions are applied, and evictions are in progress: an evicted pod still occupies its node,
and a nominated pod counts against the resources that it will release.
"""

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.podgroup import podsets_of
from scheduler.core.model.resources import Ints, ResourceKind
from scheduler.core.model.snapshot import NodeFault
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.meta import Key
from trainer_kai.cli.output.queue_tables import QueueAmounts

__all__ = ["EndState", "NodeGpus", "end_state"]

_FAULTS: Final[Mapping[int, str]] = {
    NodeFault.NO_NETWORK: "without network",
    NodeFault.PRESSURE: "under pressure",
    NodeFault.NOT_READY: "not ready",
    NodeFault.CORDONED: "cordoned",
}


class NodeGpus(NamedTuple):
    """The GPUs of a node, in 1/1000 GPU."""

    name: str
    total: int
    idle: int
    releasing: int
    reserved: int
    fault: str = ""  # why the node takes no pods


class EndState(NamedTuple):
    """The state of all nodes and queues, sorted by name."""

    nodes: tuple[NodeGpus, ...]
    queues: tuple[QueueAmounts, ...]


def end_state(
    encoded: EncodedSnapshot, nominated: Mapping[Key, str], fair_share: Ints, queues: Iterable[str]
) -> EndState:
    """Return the state of a snapshot in which the plan is applied.

    *nominated* are pods that wait for resources of terminating pods; *fair_share* has a row for
    each of *queues*.
    """
    releasing, requested = _without_nominated(encoded, nominated)
    shares = dict(zip(queues, fair_share.tolist(), strict=True))
    return EndState(_node_gpus(encoded, releasing), _queue_amounts(encoded, requested, shares))


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


def _node_gpus(encoded: EncodedSnapshot, releasing: Ints) -> tuple[NodeGpus, ...]:
    snapshot = encoded.snapshot
    gpus = list(snapshot.resources.gpus)
    columns = (snapshot.nodes.allocatable, *_balanced(snapshot.nodes.idle, releasing))
    totals = [column[:, gpus].sum(axis=1).tolist() for column in columns]
    reserved = [0] * len(snapshot.nodes.names)
    for podgroup in snapshot.podgroups:
        for podset in podsets_of(podgroup.tree):
            for reserved_place in podset.reserved_places:
                request = snapshot.signatures[reserved_place.signature].request
                reserved[reserved_place.node] += sum(request[gpu] for gpu in gpus)
    faults = map(_FAULTS.get, snapshot.nodes.fault.tolist(), repeat(""))
    rows = zip(snapshot.nodes.names, *totals, reserved, faults, strict=True)
    return tuple(sorted(NodeGpus(*row) for row in rows))


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
