"""How the nodes looked to a pod for which there was none."""

from typing import Any, Final, NamedTuple

import pytest

from scheduler.core.gang import tasks_to_allocate
from scheduler.core.model.podgroup import (
    AffinityTerm,
    LabelRequirement,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
    SpreadConstraint,
)
from scheduler.core.model.rejections import (
    FitErrorReason,
    FitErrors,
    MigRefusal,
    ReservationPodPlaces,
    ShareShortage,
)
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import GpuMode, NodeFault, Snapshot
from scheduler.core.nodes.fit_errors import collect_fit_errors
from scheduler.core.nodes.placement import PlacementFailure, PlacementRequest, Placer
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import (
    GIB,
    Builder,
    SnapshotNode,
    share_signature,
    signature,
)
from tests.support.snapshot.random_snapshots import no_pod_affinity
from tests.support.snapshot.statement_state import working_nodes
from trainer_kai.api.reasons import UnschedulableReason

POLICIES: Final = build_policies(PolicySelection())
CPU, MEMORY, POD, GPU = range(4)  # resources


def numbers_of(
    nodes: list[SnapshotNode],
    *pods: SchedulingSignature,
    policies: Policies = POLICIES,
    **crowd: Any,
) -> FitErrors:
    """Return the numbers of a gang that does not fit; nothing of it stays in the statement."""
    build = Builder(nodes=nodes)
    waiting = tuple(pod for one in pods for pod in build.waiting_pods(1, one))
    build.podgroup(PodSet("a", len(pods), waiting))
    return failed(build.snapshot(pod_relations=no_pod_affinity(len(nodes), **crowd)), policies)


def failed(snapshot: Snapshot, policies: Policies = POLICIES) -> FitErrors:
    """Return the numbers of the first PodGroup, which does not fit."""
    nodes = working_nodes(snapshot)
    placer = Placer(nodes, policies)
    tasks = tasks_to_allocate(snapshot.podgroups[0].tree)
    placed = placer.place(PlacementRequest(tasks, podgroup=0))
    assert isinstance(placed, PlacementFailure)
    signatures = placer.signature_runs(tasks)
    details = collect_fit_errors(nodes, placer.ranking(placed.signature), placed, signatures)
    assert (nodes.resources.idle == snapshot.nodes.idle).all()
    return details


class Expected(NamedTuple):
    """What a case compares: reason, how far the attempt got, nodes by obstacle, is it curable."""

    reason: UnschedulableReason
    placed: str
    counts: dict[FitErrorReason, int]
    is_resolvable: bool


ONE: Final = signature(gpu=1)
BIG: Final = signature(gpu=8)
HERMIT: Final = signature(
    gpu=1, matched_selectors=(0,), anti_affinity=(0,), existing_anti_affinity=(0,)
)
EVEN: Final = SpreadConstraint(0, 0, 1, 0, True, True, False)
ZONES: Final = [SnapshotNode(labels=(0,)), SnapshotNode(labels=(1,), used_gpu=8)]
FULL: Final = SnapshotNode(gpu=8, used_gpu=8)
NO_MATCH, SCATTERED, NO_ROOM = (
    UnschedulableReason.NO_NODE_MATCHES,
    UnschedulableReason.FRAGMENTED,
    UnschedulableReason.NO_CAPACITY,
)

# nodes, the pods of a gang -> what is told
COUNTED: list[Case[tuple[list[SnapshotNode], list[SchedulingSignature]], Expected]] = [
    Case("no node at all", ([], [ONE]), Expected(NO_MATCH, "0 of 1", {}, False)),
    Case(
        "all are full",
        ([FULL, FULL], [ONE]),
        Expected(NO_ROOM, "0 of 1", {FitErrorReason.ROOM: 2}, True),
    ),
    Case(
        "the rest is in pieces",
        ([SnapshotNode(used_gpu=4), SnapshotNode(used_gpu=4)], [BIG]),
        Expected(SCATTERED, "0 of 1", {FitErrorReason.ROOM: 2}, True),
    ),
    Case(
        "what is being released counts",
        ([SnapshotNode(used_gpu=4), SnapshotNode(used_gpu=4, releasing_gpu=4)], [BIG]),
        Expected(SCATTERED, "0 of 1", {FitErrorReason.ROOM: 2}, True),
    ),
    Case(
        "room on nodes that do not match does not count",
        ([SnapshotNode(used_gpu=4), SnapshotNode(gpu=7)], [BIG]),
        Expected(NO_ROOM, "0 of 1", {FitErrorReason.ROOM: 1, FitErrorReason.TOO_SMALL: 1}, True),
    ),
    Case(
        "room before the attempt was tried counts, for all of it",
        ([SnapshotNode(gpu=4), SnapshotNode(gpu=4)], [signature(gpu=3)] * 3),
        Expected(NO_ROOM, "2 of 3", {FitErrorReason.ROOM: 2}, True),
    ),
    Case(
        "a gang in pieces",
        ([SnapshotNode(gpu=4), SnapshotNode(gpu=4), SnapshotNode(gpu=4)], [signature(gpu=3)] * 4),
        Expected(SCATTERED, "3 of 4", {FitErrorReason.ROOM: 3}, True),
    ),
    Case(
        "less than nothing counts as nothing",
        (
            [
                SnapshotNode(gpu=4, used_gpu=9),
                SnapshotNode(gpu=4, used_gpu=1),
                SnapshotNode(gpu=4, used_gpu=3),
            ],
            [signature(gpu=4)],
        ),
        Expected(SCATTERED, "0 of 1", {FitErrorReason.ROOM: 3}, True),
    ),
    Case(
        "every fault by itself",
        ([SnapshotNode(prefilter_fault=fault) for fault in (1, 2, 3, 3, 4)], [ONE]),
        Expected(
            NO_MATCH,
            "0 of 1",
            {
                FitErrorReason.CORDONED: 1,
                FitErrorReason.NOT_READY: 2,
                FitErrorReason.PRESSURE: 1,
                FitErrorReason.NO_NETWORK: 1,
            },
            False,
        ),
    ),
    Case(
        "a node counts once, by the first obstacle",
        (
            [
                SnapshotNode(gpu=0, prefilter_fault=NodeFault.CORDONED, taints=(True,)),
                SnapshotNode(gpu=0, taints=(True,)),
            ],
            [ONE],
        ),
        Expected(NO_MATCH, "0 of 1", {FitErrorReason.CORDONED: 1, FitErrorReason.TAINT: 1}, False),
    ),
    Case(
        "too small even when empty",
        ([SnapshotNode(gpu=4), SnapshotNode(gpu=2)], [BIG]),
        Expected(NO_MATCH, "0 of 1", {FitErrorReason.TOO_SMALL: 2}, False),
    ),
    Case(
        "a label that no node has is a selector",
        ([SnapshotNode()], [signature(node_affinity=((),))]),
        Expected(NO_MATCH, "0 of 1", {FitErrorReason.SELECTOR: 1}, False),
    ),
    Case(
        "a port that the attempt itself has taken",
        ([SnapshotNode()], [signature(host_ports=(0,), conflicting_ports=(0,))] * 2),
        Expected(NO_MATCH, "1 of 2", {FitErrorReason.PORT: 1}, False),
    ),
    Case(
        "a claim of one pod",
        ([SnapshotNode()], [signature(rwop_claims=(0,))] * 2),
        Expected(NO_MATCH, "1 of 2", {FitErrorReason.CLAIM: 1}, False),
    ),
    Case(
        "friends that are nowhere cannot be evicted into being",
        ([SnapshotNode(labels=(0,))], [signature(affinity=(AffinityTerm(0, 0),))]),
        Expected(NO_MATCH, "0 of 1", {FitErrorReason.AFFINITY: 1}, False),
    ),
    Case(
        "pods that avoid each other close their zones",
        (ZONES, [HERMIT] * 2),
        Expected(
            NO_ROOM, "1 of 2", {FitErrorReason.ANTI_AFFINITY: 1, FitErrorReason.ROOM: 1}, True
        ),
    ),
    Case(
        "a spread closes the zones that are ahead",
        (ZONES, [signature(gpu=1, matched_selectors=(0,), spread_constraints=(EVEN,))] * 2),
        Expected(NO_ROOM, "1 of 2", {FitErrorReason.SPREAD: 1, FitErrorReason.ROOM: 1}, True),
    ),
]


@pytest.mark.parametrize("case", COUNTED, ids=ids)
def test_numbers(
    case: Case[tuple[list[SnapshotNode], list[SchedulingSignature]], Expected],
) -> None:
    nodes, pods = case.given
    got = numbers_of(nodes, *pods)
    report = Expected(
        got.reason, f"{got.placed} of {got.needed}", dict(got.counts), got.is_resolvable
    )
    assert report == case.want
    assert sum(got.counts.values()) == len(nodes)


def test_what_is_lacking_and_how_much_there_is() -> None:
    """Of each resource: nodes that lack it, the most on one, what is free on all of them."""
    nodes = [
        SnapshotNode(gpu=8, used_gpu=6, cpu=10),
        SnapshotNode(gpu=8, used_gpu=1, cpu=9, used_cpu=8),
        SnapshotNode(gpu=1),
    ]
    got = numbers_of(nodes, signature(gpu=4, cpu=4, memory=2), signature(gpu=1, cpu=1, memory=2))
    assert (got.signature, got.placed, got.needed) == (0, 0, 2)
    assert got.insufficient == {GPU: 1, CPU: 1}
    assert got.largest_free == {CPU: 10_000, MEMORY: 512 * GIB, POD: 110, GPU: 7_000}
    assert got.total_free == {CPU: 11_000, MEMORY: 1024 * GIB, POD: 220, GPU: 9_000}


def test_what_keeps_it_off_is_counted() -> None:
    """By taint, by label and by resource: each only on the nodes that were lost to its kind."""
    nodes = [
        SnapshotNode(taints=(True, True, False), labels=(7, 7)),
        SnapshotNode(taints=(True, False, True)),
        SnapshotNode(taints=(True, False, False), labels=(0, 0)),
        SnapshotNode(labels=(0, 0)),
        SnapshotNode(labels=(0, 1)),
        SnapshotNode(labels=(1, 1), gpu=2, memory=8),
        SnapshotNode(labels=(1, 1), gpu=4),
        SnapshotNode(labels=(1, 1), memory=4),
    ]
    one_of = (
        (LabelRequirement(0, frozenset({1, 2})),),
        (LabelRequirement(1, frozenset({1})), LabelRequirement(0, frozenset())),
    )
    pod = signature(
        gpu=8,
        memory=16,
        tolerated_taints=frozenset({0}),
        node_affinity=(one_of, ((LabelRequirement(1, frozenset({1, 7})),),)),
    )
    got = numbers_of(nodes, pod)
    assert got.counts == {
        FitErrorReason.TAINT: 2,
        FitErrorReason.SELECTOR: 3,
        FitErrorReason.TOO_SMALL: 3,
    }
    assert got.taints == {1: 1, 2: 1}
    assert got.keys == {"key-0": 3, "key-1": 2}
    assert got.too_small == {MEMORY: 2, GPU: 2}
    assert got.largest_allocatable == {MEMORY: 8 * GIB, GPU: 4000}


FOUR: Final = signature(gpu=4)
FIVE: Final = signature(gpu=5)

# nodes, the pods of a gang -> such pods that are left, seats for them without others
HOPES: list[Case[tuple[list[SnapshotNode], list[SchedulingSignature]], tuple[int, int]]] = [
    Case("one pod needs one seat", ([FULL, FULL], [BIG]), (1, 2)),
    Case(
        "a gang that fits in part has seats for the rest",
        ([SnapshotNode(used_gpu=4), FULL], [FOUR] * 4),
        (3, 3),
    ),
    Case("more than all nodes have", ([SnapshotNode(used_gpu=4)], [FOUR] * 3), (2, 1)),
    Case("in pieces even when empty", ([FULL, FULL], [FIVE] * 3), (3, 2)),
    Case("no other pod is there", ([SnapshotNode()], [FOUR] * 3), (1, 0)),
    Case("others of the gang are in the way", ([SnapshotNode()], [ONE, BIG]), (1, 0)),
    Case("nodes that do not match are no seats", ([FULL, SnapshotNode(gpu=1)], [BIG]), (1, 1)),
    Case("what is still to come differs", ([FULL], [ONE, FOUR]), (1, 8)),
    Case("the same but for a promise", ([FULL], [ONE, signature(gpu=1, nominated_node=0)]), (2, 8)),
    Case("the last one, which others move", (ZONES, [HERMIT] * 2), (1, 8)),
    Case("not the last one", (ZONES, [HERMIT] * 3), (2, 8)),
    Case("more than a node has in all", ([SnapshotNode(used_gpu=9)], [BIG]), (1, 1)),
]


@pytest.mark.parametrize("case", HOPES, ids=ids)
def test_what_others_could_give_back(
    case: Case[tuple[list[SnapshotNode], list[SchedulingSignature]], tuple[int, int]],
) -> None:
    """On the nodes of which only room is missing, and beside the gang's own pods."""
    nodes, pods = case.given
    got = numbers_of(nodes, *pods)
    assert (got.unplaced, got.fitting) == case.want


def test_the_pods_that_have_a_node() -> None:
    """In the order in which they are placed: the last run may be there in part."""
    got = numbers_of([SnapshotNode(), SnapshotNode()], ONE, *[FOUR] * 4)
    assert (got.placed, got.placed_before) == (4, ((0, 1), (1, 3)))
    assert numbers_of([FULL], ONE).placed_before == ()


ONE_PORT: Final = signature(host_ports=(0,), conflicting_ports=(0,))

# nodes, the pods of a gang -> nodes that only its own pods closed
OWN: list[Case[tuple[list[SnapshotNode], list[SchedulingSignature]], dict[FitErrorReason, int]]] = [
    Case("missing room is no node of its own", ([SnapshotNode(gpu=1)], [ONE] * 2), {}),
    Case(
        "its own port closes the nodes it takes",
        ([SnapshotNode(), SnapshotNode()], [ONE_PORT] * 3),
        {FitErrorReason.PORT: 2},
    ),
    Case(
        "its own pods that avoid each other close a zone",
        (ZONES, [HERMIT] * 2),
        {FitErrorReason.ANTI_AFFINITY: 1},
    ),
    Case(
        "friends that are nowhere",
        ([SnapshotNode(labels=(0,))], [signature(affinity=(AffinityTerm(0, 0),))]),
        {},
    ),
    Case(
        "its own claim closes the other nodes",
        ([SnapshotNode()], [signature(rwop_claims=(0,))] * 2),
        {FitErrorReason.CLAIM: 1},
    ),
]


@pytest.mark.parametrize("case", OWN, ids=ids)
def test_nodes_that_only_its_own_pods_closed(
    case: Case[tuple[list[SnapshotNode], list[SchedulingSignature]], dict[FitErrorReason, int]],
) -> None:
    nodes, pods = case.given
    assert dict(numbers_of(nodes, *pods).own_counts) == case.want


def test_its_own_reserved_places_are_given_up_for_it() -> None:
    """They are no room of others: not on one node, not on all, and not for the reason."""
    build = Builder(nodes=[SnapshotNode(gpu=2, used_gpu=2), SnapshotNode(gpu=2, used_gpu=1)])
    reserved_places = (
        ReservedPlace(0, build.signature_row(ONE), ReservationCause.ANTICIPATED),
    ) * 2
    build.podgroup(
        PodSet("a", 2, build.waiting_pods(2, signature(gpu=2)), reserved_places=reserved_places)
    )
    details = failed(build.snapshot())
    assert (details.reason, details.placed, details.largest_free[GPU]) == (NO_ROOM, 0, 1000)
    assert (details.total_free[GPU], details.unplaced, details.fitting) == (2000, 2, 2)


def test_all_reserved_places_of_the_attempt_make_the_reason() -> None:
    """Also those of pods that were not tried any more."""
    nodes = [SnapshotNode(gpu=2, used_gpu=used) for used in (2, 2, 1, 1)]
    build = Builder(nodes=nodes)
    reserved_places = tuple(
        ReservedPlace(node, build.signature_row(ONE), ReservationCause.ANTICIPATED)
        for node in (0, 1)
    )
    build.podgroup(
        PodSet("a", 2, build.waiting_pods(2, signature(gpu=2)), reserved_places=reserved_places)
    )
    details = failed(build.snapshot())
    assert (details.reason, details.placed, details.total_free[GPU]) == (SCATTERED, 0, 3000)


def test_a_claim_in_use_elsewhere() -> None:
    """Where it is in use there is no room; elsewhere it cannot be reached."""
    got = numbers_of(
        [FULL, SnapshotNode()], signature(gpu=1, rwo_claims=(0,)), claim_node=(0,), claim_users=(1,)
    )
    assert got.counts == {FitErrorReason.CLAIM: 1, FitErrorReason.ROOM: 1}
    assert got.is_resolvable


HALF: Final = share_signature(0.5)
PAIR: Final = share_signature(0.5, 2)
SHARED: Final = ((800, 0), (300, 0))  # of two GPUs

# nodes, the pod -> what is free of shares
SHARES: list[Case[tuple[list[SnapshotNode], SchedulingSignature], ShareShortage]] = [
    Case(
        "the most of one GPU",
        ([SnapshotNode(gpu=1, shares=((800, 0),)), SnapshotNode(gpu=1, shares=((700, 0),))], HALF),
        ShareShortage(2, 500, 300, 1, 500),
    ),
    Case(
        "GPUs that are used in full",
        ([SnapshotNode(gpu=2, used_gpu=1, shares=((1200, 0),))], HALF),
        ShareShortage(1, 500, 0, NONE, 0),
    ),
    Case(
        "two GPUs: the one of both that has less",
        ([SnapshotNode(gpu=2, shares=SHARED)], PAIR),
        ShareShortage(1, 500, 200, 0, 900),
    ),
    Case(
        "two GPUs, and only one has anything free",
        ([SnapshotNode(gpu=2, used_gpu=1)], PAIR),
        ShareShortage(1, 500, 0, NONE, 1000),
    ),
    Case(
        "two GPUs that are used in full",
        ([SnapshotNode(gpu=2, shares=((1200, 0), (1000, 0)))], PAIR),
        ShareShortage(1, 500, 0, NONE, 0),
    ),
    Case(
        "two GPUs, one of them whole",
        ([SnapshotNode(gpu=2, shares=((900, 0),))], PAIR),
        ShareShortage(1, 500, 100, 0, 1100),
    ),
    Case(
        "no place for a reservation pod",
        ([SnapshotNode(gpu=1, pods=2), SnapshotNode(gpu=1, used_gpu=1)], HALF),
        ShareShortage(1, 500, 1000, 0, 1000, ReservationPodPlaces(1, 1, 0)),
    ),
    Case(
        "a place for one of two reservation pods",
        ([SnapshotNode(gpu=2, pods=4)], PAIR),
        ShareShortage(0, 500, 1000, 0, 2000, ReservationPodPlaces(1, 2, 1)),
    ),
    Case(
        "of places, the node that lacks the fewest",
        ([SnapshotNode(gpu=2, pods=3), SnapshotNode(gpu=3, pods=3, shares=((500, 0),))], PAIR),
        ShareShortage(0, 500, 1000, 0, 4500, ReservationPodPlaces(2, 1, 0)),
    ),
    Case(
        "a GPU that pods share needs no place",
        ([SnapshotNode(gpu=1, cpu=1, used_cpu=1, pods=2, shares=((500, 0),))], HALF),
        ShareShortage(0, 500, 500, 0, 500),
    ),
]


@pytest.mark.parametrize("case", SHARES, ids=ids)
def test_what_is_free_of_shares(
    case: Case[tuple[list[SnapshotNode], SchedulingSignature], ShareShortage],
) -> None:
    """Of so many GPUs as the pod requests, and places for the reservation pods of new ones."""
    nodes, pod = case.given
    build = Builder(nodes=nodes)
    build.podgroup(PodSet("a", 1, build.waiting_pods(1, pod)))
    for node, it in enumerate(nodes):
        if it.pods < 110:
            build.running_podgroup([node] * pod.shared_devices, signature(cpu=0))
    assert failed(build.snapshot()).share_shortage == case.want


def test_the_node_that_is_nearest_to_a_fit_by_memory() -> None:
    """It is not the one with the largest free part of a GPU: parts are of different GPUs."""
    nodes = [
        SnapshotNode(gpu=1, gpu_memory=40_000, shares=((500, 0),)),
        SnapshotNode(gpu=1, gpu_memory=80_000, shares=((610, 0),)),
        SnapshotNode(gpu=1, gpu_memory=80_000, shares=((1000, 0),)),  # has nothing free
    ]
    build = Builder(nodes=nodes)
    build.podgroup(PodSet("a", 1, build.waiting_pods(1, build.memory_signature(33_000))))
    assert failed(build.snapshot()).share_shortage == ShareShortage(3, 420, 390, 1, 890)


def test_a_node_with_something_free_is_nearer_than_a_node_with_nothing() -> None:
    """Also where its GPU has less memory, so that more of it is missing."""
    nodes = [
        SnapshotNode(gpu=1, gpu_memory=80_000, shares=((1000, 0),)),
        SnapshotNode(gpu=1, gpu_memory=40_000, shares=((900, 0),)),
    ]
    build = Builder(nodes=nodes)
    build.podgroup(PodSet("a", 1, build.waiting_pods(1, build.memory_signature(33_000))))
    assert failed(build.snapshot()).share_shortage == ShareShortage(2, 420, 100, 1, 100)


def test_why_nodes_take_no_mig_profiles() -> None:
    """Of the nodes that no earlier reason excludes; a label counts before pods that may end."""
    nodes = [
        SnapshotNode(prefilter_fault=NodeFault.CORDONED),
        SnapshotNode(),
        SnapshotNode(gpu_mode=GpuMode.MIG_SINGLE, is_closed_to_mig=True),
        SnapshotNode(gpu_mode=GpuMode.MIG, is_closed_to_mig=True),
        SnapshotNode(gpu_mode=GpuMode.MIG_MIXED, is_closed_to_mig=True),
        SnapshotNode(gpu_mode=GpuMode.MIG_SINGLE, prefilter_fault=NodeFault.CORDONED),
    ]
    details = numbers_of(nodes, signature(requests_mig=True))
    assert details.counts == {FitErrorReason.CORDONED: 2, FitErrorReason.GPU_MODE: 4}
    assert details.mig_refusals == {
        MigRefusal.NO_MIG_NODE: 1,
        MigRefusal.SINGLE_STRATEGY: 1,
        MigRefusal.LEGACY_PODS: 2,
    }
    assert numbers_of([SnapshotNode(gpu_mode=GpuMode.MIG_MIXED)], ONE).mig_refusals == {}
