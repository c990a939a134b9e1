"""Devices of ResourceClaims: which ones pods get, and what is left after each change."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from scheduler.core.gang import tasks_to_allocate
from scheduler.core.model.claims import ClaimDevices, SharedClaim, held_device, slot_and_device
from scheduler.core.model.podgroup import PodSet, SchedulingSignature
from scheduler.core.model.rejections import FitErrorReason, FitErrors
from scheduler.core.model.resources import DeviceSort, devices_of
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.nodes.device_sorts.claims import Claims
from scheduler.core.nodes.fit_errors import collect_fit_errors
from scheduler.core.nodes.placement import PlacementFailure, PlacementRequest, Placer
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode
from tests.support.snapshot.claim_devices import (
    ANY,
    BIG,
    GPU,
    NIC,
    TestDevice,
    claim,
    claim_devices,
    claim_signature,
    exactly,
    first_available,
    gpus,
)

POLICIES = build_policies(PolicySelection())
NODE = SnapshotNode(gpu=0)
ONE = claim_signature(claim())


class Outcome(NamedTuple):
    """By pod: its node and devices; or how many pods fitted before one did not."""

    placed: list[tuple[int, list[int]]]
    is_waiting: bool = False  # all of them wait for terminating pods


def place(
    devices: ClaimDevices, pods: Sequence[SchedulingSignature], nodes: int = 2
) -> Outcome | FitErrors:
    build = Builder(nodes=[NODE] * nodes)
    waiting = tuple(pod for one in pods for pod in build.waiting_pods(1, one))
    build.podgroup(PodSet("a", len(pods), waiting))
    snapshot = build.snapshot(claim_devices=devices)
    working = WorkingNodes(snapshot, POLICIES)
    placer = Placer(working, POLICIES)
    tasks = tasks_to_allocate(snapshot.podgroups[0].tree)
    before = state(working)
    found = placer.place(PlacementRequest(tasks, podgroup=0))
    if isinstance(found, PlacementFailure):
        runs = placer.signature_runs(tasks)
        errors = collect_fit_errors(working, placer.ranking(found.signature), found, runs)
        assert state(working) == before
        return errors
    assert isinstance(found, PodGroupAllocation)
    working.statement.roll_back(0)
    assert state(working) == before
    placed = sorted((*found.binds, *found.nominations), key=lambda it: it.pod)
    return Outcome(
        [
            (it.node, sorted(slot_and_device(d)[1] for d in devices_of(it.held, DeviceSort.CLAIM)))
            for it in placed
        ],
        is_waiting=bool(found.nominations),
    )


def state(nodes: WorkingNodes) -> tuple[Any, ...]:
    claims = nodes.devices.participants[DeviceSort.CLAIM]
    assert isinstance(claims, Claims)
    views = [
        (
            tuple(it.used),
            tuple(it.counters),
            [(s.allocation, s.users, *s.before) for s in it.shared],
        )
        for it in (claims.now, claims.later)
    ]
    filters = range(len(claims.devices.filters) if claims.devices.names else 0)
    counts = [[[*it] for it in claims.counts(one)] for one in filters]
    return *views, claims.free_gpus, counts


class Given(NamedTuple):
    devices: ClaimDevices
    pods: Sequence[SchedulingSignature]


ROOTS = [TestDevice(0, "gpu", 1), TestDevice(0, "gpu", 2), TestDevice(0, "nic", 2), TestDevice(1)]
MIG = [
    TestDevice(0, "big", counters=((0, 8),)),
    TestDevice(0, "gpu", counters=((0, 4),)),
    TestDevice(0, "gpu", counters=((0, 4),)),
]
SHARED = claim_signature(claim(shared=0))
PAIR = claim(exactly(GPU, 1, "a"), exactly(NIC, 1, "b"), match=(0, 1))
CASES = [
    Case("one device", Given(claim_devices(gpus(2, 1)), [ONE]), Outcome([(0, [0])])),
    Case(
        "a device each", Given(claim_devices(gpus(1, 2)), [ONE] * 2), Outcome([(0, [0]), (0, [1])])
    ),
    Case(
        "several on one node",
        Given(claim_devices(gpus(2, 2), taken=[0]), [claim_signature(claim(exactly(GPU, 2)))]),
        Outcome([(1, [2, 3])]),
    ),
    Case(
        "two claims of one pod",
        Given(claim_devices(gpus(1, 2)), [claim_signature(claim(), claim())]),
        Outcome([(0, [0, 1])]),
    ),
    Case(
        "a device that is not selected",
        Given(
            claim_devices([TestDevice(0), TestDevice(0, "big")]),
            [claim_signature(claim(exactly(BIG)))],
        ),
        Outcome([(0, [1])]),
    ),
    Case(
        "a tainted device",
        Given(claim_devices([TestDevice(0, is_tainted=True), TestDevice(1)]), [ONE]),
        Outcome([(1, [1])]),
    ),
    Case(
        "requests whose devices overlap",
        Given(
            claim_devices([TestDevice(0, "big"), TestDevice(0)]),
            [claim_signature(claim(exactly(GPU, 1, "a"), exactly(BIG, 1, "b")))],
        ),
        Outcome([(0, [0, 1])]),
    ),
    Case(
        "the first alternative",
        Given(
            claim_devices([TestDevice(0), TestDevice(0, "big")]),
            [claim_signature(claim(first_available((BIG, 1), (GPU, 1))))],
        ),
        Outcome([(0, [1])]),
    ),
    Case(
        "the second alternative",
        Given(
            claim_devices([TestDevice(0), TestDevice(0)]),
            [claim_signature(claim(first_available((BIG, 1), (GPU, 2))))],
        ),
        Outcome([(0, [0, 1])]),
    ),
    Case(
        "all devices",
        Given(claim_devices(gpus(1, 3)), [claim_signature(claim(exactly(GPU, 0)))]),
        Outcome([(0, [0, 1, 2])]),
    ),
    Case(
        "all devices, and one is taken",
        Given(claim_devices(gpus(2, 2), taken=[0]), [claim_signature(claim(exactly(GPU, 0)))]),
        Outcome([(1, [2, 3])]),
    ),
    Case(
        "all devices, and one is tainted",
        Given(
            claim_devices([TestDevice(0), TestDevice(0, is_tainted=True), TestDevice(1)]),
            [claim_signature(claim(exactly(GPU, 0)))],
        ),
        Outcome([(1, [2])]),
    ),
    Case(
        "devices of one root",
        Given(claim_devices(ROOTS), [claim_signature(PAIR)]),
        Outcome([(0, [1, 2])]),
    ),
    Case(
        "a constraint about one request only",
        Given(
            claim_devices(ROOTS),
            [claim_signature(claim(exactly(GPU, 1), exactly(NIC, 1), match=(1,)))],
        ),
        Outcome([(0, [0, 2])]),
    ),
    Case(
        "counters leave room for two parts",
        Given(
            claim_devices(MIG, counters=(8,)),
            [claim_signature(claim(exactly(GPU, 1)))] * 1
            + [claim_signature(claim(first_available((GPU, 1))), cpu=2)] * 0,
        ),
        Outcome([(0, [0])]),
    ),
    Case(
        "counters that are used up",
        Given(
            claim_devices(MIG, counters=(8,), taken=[1]), [claim_signature(claim(exactly(GPU, 1)))]
        ),
        Outcome([(0, [2])]),
    ),
    Case(
        "counters within one claim",
        Given(claim_devices(MIG, counters=(8,)), [claim_signature(claim(exactly(GPU, 2)))]),
        Outcome([(0, [1, 2])]),
    ),
    Case(
        "terminating pods have the device",
        Given(claim_devices(gpus(1, 1), releasing=[0]), [ONE]),
        Outcome([(0, [0])], is_waiting=True),
    ),
    Case(
        "an idle device before one that is being released",
        Given(claim_devices(gpus(1, 2), releasing=[0]), [ONE]),
        Outcome([(0, [1])]),
    ),
    Case(
        "a gang waits together",
        Given(claim_devices(gpus(1, 2), releasing=[0]), [ONE, ONE]),
        Outcome([(0, [1]), (0, [0])], is_waiting=True),
    ),
    Case(
        "a claim of two pods",
        Given(claim_devices(gpus(2, 1), shared=[SharedClaim("s")]), [SHARED, SHARED]),
        Outcome([(0, [0]), (0, [0])]),
    ),
    Case(
        "a claim that is allocated",
        Given(
            claim_devices(
                gpus(2, 1), taken=[1], shared=[SharedClaim("s", 1, (1,), is_allocated=True)]
            ),
            [SHARED, SHARED],
        ),
        Outcome([(1, [1]), (1, [1])]),
    ),
    Case(
        "a claim whose only pod terminates",
        Given(
            claim_devices(
                gpus(2, 1),
                releasing=[1],
                shared=[SharedClaim("s", 1, (1,), releasing_users=1)],
            ),
            [SHARED],
        ),
        Outcome([(0, [0])], is_waiting=True),
    ),
    Case(
        "a claim of its own and one of several",
        Given(
            claim_devices(gpus(2, 2), shared=[SharedClaim("s")]),
            [claim_signature(claim(shared=0), claim())] * 1 + [SHARED],
        ),
        Outcome([(0, [0, 1]), (0, [0])]),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_devices(case: Case[Given, Outcome]) -> None:
    assert place(*case.given) == case.want


class Lack(NamedTuple):
    counts: dict[FitErrorReason, int]
    request: str
    fell_out: tuple[int, int, int]  # not selected, tainted, taken
    placed: int = 0


LACKS = [
    Case(
        "no such device",
        Given(claim_devices(gpus(2, 1)), [claim_signature(claim(exactly(NIC, 1, "nic")))]),
        Lack({FitErrorReason.DEVICES: 2}, "nic", (2, 0, 0)),
    ),
    Case(
        "no devices at all",
        Given(claim_devices([]), [ONE]),
        Lack({FitErrorReason.DEVICES: 2}, "r", (0, 0, 0)),
    ),
    Case(
        "one is tainted, and one is taken",
        Given(claim_devices([TestDevice(0, is_tainted=True), TestDevice(1)], taken=[1]), [ONE]),
        Lack({FitErrorReason.DEVICES: 1, FitErrorReason.ROOM: 1}, "r", (0, 1, 1)),
    ),
    Case(
        "a gang of one pod too many",
        Given(claim_devices(gpus(2, 1)), [ONE] * 3),
        Lack({FitErrorReason.ROOM: 2}, "r", (0, 0, 2), placed=2),
    ),
    Case(
        "no two devices of one root",
        Given(claim_devices([ROOTS[0], ROOTS[2]]), [claim_signature(PAIR)]),
        Lack({FitErrorReason.DEVICES: 1, FitErrorReason.ROOM: 1}, "a", (1, 0, 0)),
    ),
    Case(
        "too many for one node",
        Given(claim_devices(gpus(2, 4)), [claim_signature(claim(exactly(GPU, 5)))]),
        Lack({FitErrorReason.DEVICES: 2}, "r", (0, 0, 0)),
    ),
    Case(
        "counters are used up",
        Given(
            claim_devices(MIG, counters=(8,), taken=[0]), [claim_signature(claim(exactly(GPU, 1)))]
        ),
        Lack({FitErrorReason.DEVICES: 1, FitErrorReason.ROOM: 1}, "r", (0, 0, 1)),
    ),
    Case(
        "a claim that is allocated on a full node",
        Given(
            claim_devices(
                gpus(2, 1), taken=[1], shared=[SharedClaim("s", 1, (1,), is_allocated=True)]
            ),
            [claim_signature(claim(shared=0), claim())],
        ),
        Lack({FitErrorReason.DEVICES: 1, FitErrorReason.ROOM: 1}, "", (0, 0, 0)),
    ),
]


@pytest.mark.parametrize("case", LACKS, ids=ids)
def test_what_is_missing(case: Case[Given, Lack]) -> None:
    errors = place(*case.given)
    assert isinstance(errors, FitErrors)
    shortage = errors.claim_shortage
    assert shortage is not None
    assert errors.counts == case.want.counts
    assert errors.placed == case.want.placed
    assert shortage.request == case.want.request
    assert (shortage.not_selected, shortage.tainted, shortage.taken) == case.want.fell_out


def test_a_search_ends_at_its_bound_and_says_so() -> None:
    devices = claim_devices([TestDevice(0, "gpu", root) for root in range(64)])
    hard = claim_signature(claim(exactly(GPU, 2, "a"), exactly(GPU, 3, "b"), match=(1,)))
    errors = place(devices, [hard], nodes=1)
    assert isinstance(errors, FitErrors)
    assert errors.claim_shortage is not None
    assert errors.claim_shortage.is_search_limited


def test_an_eviction_frees_devices_later_and_its_undoing_takes_them_back() -> None:
    build = Builder(nodes=[NODE])
    build.running_podgroup([0, 0], SHARED)
    devices = claim_devices(
        gpus(1, 2),
        taken=[0],
        shared=[SharedClaim("s", 0, (0,), users=2)],
        held={0: (held_device(0, 0),), 1: (held_device(0, 0),)},
    )
    nodes = WorkingNodes(build.snapshot(claim_devices=devices), POLICIES)
    claims = nodes.devices.participants[DeviceSort.CLAIM]
    assert isinstance(claims, Claims)
    held = nodes.snapshot.held_devices
    before = state(nodes)
    free = []
    for pod in (0, 1):
        nodes.statement.evict(0, 0, held[pod])
        free.append((claims.counts(ANY)[0][0], claims.counts(ANY)[1][0]))
    assert free == [(1, 1), (2, 1)]
    nodes.statement.roll_back(0)
    assert state(nodes) == before


def test_a_claim_that_is_allocated_closes_all_other_nodes() -> None:
    """What is known of them is found anew, however many there are."""
    build = Builder(nodes=[NODE] * 40)
    build.uniform_podgroup(1, SHARED)
    build.uniform_podgroup(1, claim_signature(claim(shared=0), cpu=2))
    devices = claim_devices(gpus(40, 1), shared=[SharedClaim("s")])
    nodes = WorkingNodes(build.snapshot(claim_devices=devices), POLICIES)
    placer = Placer(nodes, POLICIES)
    other = placer.ranking(1)
    assert [other.fits(node) for node in (0, 7)] == [True, True]
    placed = placer.place(PlacementRequest(tasks_to_allocate(nodes.snapshot.podgroups[0].tree)))
    assert isinstance(placed, PodGroupAllocation)
    assert [node for node in range(40) if other.fits(node)] == [placed.binds[0].node]
    nodes.statement.roll_back(0)
    assert other.fits(7)
