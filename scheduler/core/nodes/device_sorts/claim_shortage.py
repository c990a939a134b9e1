"""Why nodes lack the devices of a claim: the request, and by how many devices fall out and why."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from scheduler.core.model.claims import ALL, ClaimDevices, PodClaim
from scheduler.core.model.rejections import ClaimShortage
from scheduler.core.model.resources import Bools, Ints
from scheduler.core.nodes.device_sorts.claim_search import Demand


class NodeCounts:
    """The devices of some nodes that lack some."""

    def __init__(self, devices: ClaimDevices, nodes: Bools, is_free: Callable[[int], bool]) -> None:
        self.devices = devices
        self.nodes = nodes
        self.here: Bools = nodes[devices.node] if len(devices.node) else devices.is_gpu
        free = [bool(here) and is_free(it) for it, here in enumerate(self.here.tolist())]
        self.is_free: Bools = np.array(free, dtype=np.bool_)

    def free_on_nodes(self, filter_: int) -> Ints:
        chosen = self.devices.usable[filter_] & self.here & self.is_free
        found: Ints = np.bincount(self.devices.node[chosen], minlength=len(self.nodes))
        return found


class LackingRequest(NamedTuple):
    claim: str
    request: str
    filter: int
    number: int
    is_combination: bool  # no request lacks devices by itself


def lacking_request(
    claims: tuple[PodClaim, ...], demand: Demand, counts: NodeCounts
) -> LackingRequest:
    """Return the request that most of the nodes lack devices for; or the first if none does."""
    found, most = None, 0
    for parts, (c, r) in zip(demand.requests, demand.names, strict=True):
        lacks = np.ones(len(counts.nodes), dtype=np.bool_)
        for part in parts:
            free = counts.free_on_nodes(part.alternative.filter)
            lacks &= free < max(part.alternative.number, 1)
        number = int((lacks & counts.nodes).sum())
        if number > most or found is None:
            first, claim = parts[0].alternative, claims[c]
            name = claim.requests[r].name
            found = LackingRequest(claim.name, name, first.filter, first.number, not number)
            most = number
    assert found is not None  # a pod without requests fits everywhere
    return found


def shortage_of(found: LackingRequest, counts: NodeCounts) -> ClaimShortage:
    devices, here = counts.devices, counts.here
    selected, tolerated = devices.selected[found.filter], devices.tolerated[found.filter]
    free = counts.free_on_nodes(found.filter)
    filter_ = devices.filters[found.filter]
    return ClaimShortage(
        claim=found.claim,
        request=found.request,
        class_name=filter_.class_name,
        needed=found.number,
        insufficient=int((counts.nodes & (free < max(found.number, 1))).sum())
        or int(counts.nodes.sum()),
        devices=int(here.sum()),
        not_selected=int((here & ~selected).sum()),
        tainted=int((here & selected & ~tolerated).sum()),
        taken=int((here & selected & tolerated & ~counts.is_free).sum()),
        largest_free=int(free.max(initial=0)),
        total_free=int(free.sum()),
        is_combination=found.is_combination or found.number == ALL,
        error=filter_.error,
        left_out=tuple(devices.left_out.items()),
    )


def allocated_elsewhere(claim: str, node: int, nodes: Bools) -> ClaimShortage:
    number = int(nodes.sum())
    return ClaimShortage(claim, "", "", 0, number, 0, allocated_on=node)
