"""Devices of ResourceClaims for snapshots of tests: calls state what is not the default."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.core.model.claims import (
    Alternative,
    ClaimDevices,
    ClaimRequest,
    DeviceFilter,
    DeviceName,
    MatchConstraint,
    PodClaim,
    SharedClaim,
)
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import NONE
from tests.support.snapshot.builder import GIB

GPU, BIG, NIC, ANY = range(4)  # filters: GPUs, large GPUs, NICs, all devices
FILTERS = (
    DeviceFilter("gpu", counts_gpus=True),
    DeviceFilter("big-gpu", counts_gpus=True),
    DeviceFilter("nic", counts_gpus=False),
    DeviceFilter("any", counts_gpus=False),
)


@dataclass(frozen=True)
class TestDevice:
    """A device, and what of it matters to a filter or constraint."""

    __test__ = False

    node: int
    kind: str = "gpu"  # or "big", "nic"
    root: int = NONE  # the value of the only attribute
    is_tainted: bool = False
    counters: tuple[tuple[int, int], ...] = ()


def gpus(nodes: int, each: int = 8) -> list[TestDevice]:
    return [TestDevice(node) for node in range(nodes) for _ in range(each)]


def claim_devices(
    devices: Sequence[TestDevice],
    *,
    taken: Sequence[int] = (),
    releasing: Sequence[int] = (),
    shared: Sequence[SharedClaim] = (),
    held: Mapping[int, tuple[int, ...]] | None = None,
    counters: tuple[int, ...] = (),
) -> ClaimDevices:
    assert [it.node for it in devices] == sorted(it.node for it in devices)
    kinds = [it.kind for it in devices]
    selected = [
        [it in {"gpu", "big"} for it in kinds],
        [it == "big" for it in kinds],
        [it == "nic" for it in kinds],
        [True for _ in kinds],
    ]
    return ClaimDevices(
        names=tuple(
            DeviceName("driver", f"pool-{it.node}", f"d{n}") for n, it in enumerate(devices)
        ),
        node=np.array([it.node for it in devices], dtype=np.int64),
        is_gpu=np.array(selected[0], dtype=np.bool_),
        filters=FILTERS,
        selected=np.array(selected, dtype=np.bool_),
        tolerated=np.array([[not it.is_tainted for it in devices]] * 4, dtype=np.bool_),
        attributes=np.array([[it.root for it in devices]], dtype=np.int32),
        counters=counters,
        counter_use={n: it.counters for n, it in enumerate(devices) if it.counters},
        taken=frozenset(taken) | frozenset(releasing),
        releasing=frozenset(releasing),
        shared=tuple(shared),
        held=held or {},
    )


def exactly(filter_: int = GPU, number: int = 1, name: str = "r") -> ClaimRequest:
    return ClaimRequest(name, (Alternative(filter_, number),))


def first_available(*alternatives: tuple[int, int], name: str = "r") -> ClaimRequest:
    return ClaimRequest(
        name,
        tuple(Alternative(it, number, f"s{n}") for n, (it, number) in enumerate(alternatives)),
    )


def claim(*requests: ClaimRequest, match: Sequence[int] = (), shared: int = NONE) -> PodClaim:
    """Return a claim; the requests at the positions *match* have devices of one root."""
    slots = frozenset((r, a) for r in match for a in range(len(requests[r].alternatives)))
    constraints = (MatchConstraint(0, slots),) if match else ()
    return PodClaim("c", requests or (exactly(),), constraints, shared)


def claim_signature(
    *claims: PodClaim, cpu: float = 1, gpu: float = 0, **more: Any
) -> SchedulingSignature:
    amounts = (round(cpu * 1000), GIB, 1, round(gpu * 1000))
    charged = sum(
        it.requests[r].alternatives[0].number
        for it in claims
        for r in range(len(it.requests))
        if FILTERS[it.requests[r].alternatives[0].filter].counts_gpus
    )
    return SchedulingSignature(
        request=amounts,
        queue_request=(amounts[0], GIB, amounts[3] + 1000 * charged),
        has_gpu=bool(charged or gpu),
        claims=claims,
        **more,
    )
