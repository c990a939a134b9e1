"""Room for an attempt: for all of it, or for nothing."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from hypothesis import example, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from scheduler.core.gang import AssignedTasks, PodSetTasks, tasks_to_allocate
from scheduler.core.model.podgroup import (
    AffinityTerm,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
    SpreadConstraint,
    SubGroupSet,
    SubGroupTree,
)
from scheduler.core.model.result import PodGroupAllocation, QuotaRefusal, Reservation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.placement import PlacementFailure, PlacementRequest, Placer
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from tests.support.snapshot.random_snapshots import no_pod_affinity
from tests.support.snapshot.statement_state import working_nodes

POLICIES: Final = build_policies(PolicySelection())
GPU, PAIR, CPU = 0, 1, 2
SIGNATURES: Final = (signature(gpu=1), signature(gpu=2), signature(cpu=4))


class PodSetCase(NamedTuple):
    pods: tuple[int, ...]
    minimum: int
    expected: int = 0
    reserved_places: tuple[int, ...] = ()  # nodes
    running: int = 0


def snapshot_of(
    nodes: list[SnapshotNode], podsets: list[PodSetCase], minimum: int | None = None
) -> Snapshot:
    """Return a snapshot of one PodGroup, with pods numbered in the order of its PodSets."""
    build = Builder(nodes=nodes)
    for one in SIGNATURES:
        build.signature_row(one)
    children = [_leaf(build, name, it) for name, it in zip("abc", podsets, strict=False)]
    tree: SubGroupTree = children[0]
    if len(children) > 1:
        tree = SubGroupSet("all", len(children) if minimum is None else minimum, tuple(children))
    build.podgroup(tree)
    return build.snapshot()


def _leaf(build: Builder, name: str, it: PodSetCase) -> PodSet:
    pods = [pod for one in it.pods for pod in build.waiting_pods(1, SIGNATURES[one])]
    row = it.pods[0] if it.pods else GPU
    reserved_places = tuple(
        ReservedPlace(node, row, ReservationCause.ANTICIPATED) for node in it.reserved_places
    )
    later = it.expected
    return PodSet(name, it.minimum, tuple(pods), it.running, 0, reserved_places, later, row)


def described(placed: PodGroupAllocation | PlacementFailure | QuotaRefusal) -> str:
    """Return nodes by pod; ~ is before one where it waits, + before one that is reserved."""
    if isinstance(placed, PlacementFailure):
        return f"no room for {placed.signature} after {placed.placed}"
    assert isinstance(placed, PodGroupAllocation)
    bound = {pod: f"{node}" for pod, node, _ in placed.binds}
    is_pipelined = {pod: f"~{node}" for pod, node, _ in placed.nominations}
    reserved = [f"+{it.node}" * it.number for it in placed.reservations]
    return " ".join([*(at for _, at in sorted({**bound, **is_pipelined}.items())), *reserved])


def play(given: Snapshot) -> tuple[list[str], WorkingNodes]:
    """Place attempt after attempt, until nothing is left or one finds no room."""
    nodes = working_nodes(given)
    placer = Placer(nodes, POLICIES)
    tree, assigned = given.podgroups[0].tree, AssignedTasks()
    got: list[str] = []
    while taken := tasks_to_allocate(tree, assigned):
        placed = placer.place(PlacementRequest(taken, assigned, podgroup=0))
        got.append(described(placed))
        if isinstance(placed, PlacementFailure):
            nodes.statement.roll_back(placed.checkpoint)
            break
        assigned.add(taken)
    return got, nodes


TWO: Final = [SnapshotNode(gpu=2), SnapshotNode(gpu=2)]
SOON: Final = [
    SnapshotNode(gpu=1),
    SnapshotNode(gpu=2, releasing_gpu=1),
]  # three: two now, one soon
ONE_SOON: Final = [SnapshotNode(gpu=2, releasing_gpu=1)]

# nodes, leaves -> where the pods of each attempt go
PLACED: list[Case[tuple[list[SnapshotNode], list[PodSetCase]], list[str]]] = [
    Case("a gang, packed", (TWO, [PodSetCase((GPU,) * 3, 3)]), ["0 0 1"]),
    Case("pods beyond the minimum one by one", (TWO, [PodSetCase((GPU,) * 3, 1)]), ["0", "0", "1"]),
    Case("all or nothing", (TWO, [PodSetCase((GPU,) * 5, 5)]), ["no room for 0 after 4"]),
    Case(
        "what had room stays",
        (TWO, [PodSetCase((GPU,) * 5, 4)]),
        ["0 0 1 1", "no room for 0 after 0"],
    ),
    Case(
        "sub-groups by name", (TWO, [PodSetCase((PAIR,), 1), PodSetCase((GPU, GPU), 2)]), ["0 1 1"]
    ),
    Case(
        "a pod that does not fit gets a reason",
        (TWO, [PodSetCase((GPU,), 1), PodSetCase((PAIR, PAIR), 2)]),
        ["no room for 1 after 2"],
    ),
    Case("if one has to wait, all wait", (SOON, [PodSetCase((GPU,) * 3, 3)]), ["~0 ~1 ~1"]),
    Case(
        "a pod does not wait for one beyond the minimum",
        (SOON, [PodSetCase((GPU,) * 3, 2)]),
        ["0 1", "~1"],
    ),
    Case(
        "what is more waits as well, while what is needed does",
        (ONE_SOON, [PodSetCase((GPU, GPU, CPU), 2)]),
        ["~0 ~0", "~0"],
    ),
    Case(
        "what the PodGroup does not need may wait alone",
        (
            [SnapshotNode(gpu=2, releasing_gpu=1)],
            [PodSetCase((), 1, running=1), PodSetCase((GPU, GPU), 2)],
        ),
        ["0 ~0"],
    ),
    Case("later pods are reserved behind", (TWO, [PodSetCase((GPU,), 3, expected=2)]), ["0 +0 +1"]),
    Case(
        "of each PodSet and node one reservation",
        ([SnapshotNode(gpu=4)], [PodSetCase((GPU,), 4, expected=3)]),
        ["0 +0+0+0"],
    ),
    Case(
        "no room for later ones",
        (TWO, [PodSetCase((GPU,), 9, expected=8)]),
        ["no room for 0 after 4"],
    ),
    Case(
        "a pod that comes for a reserved place takes it",
        (
            [SnapshotNode(gpu=4, used_gpu=3), SnapshotNode(gpu=4, used_gpu=1)],
            [PodSetCase((GPU, GPU), 2, reserved_places=(1,))],
        ),
        ["1 0"],
    ),
    Case(
        "reserved places in their order",
        (
            [SnapshotNode(gpu=1, used_gpu=1)] * 3,
            [PodSetCase((GPU, GPU), 2, reserved_places=(2, 1))],
        ),
        ["2 1"],
    ),
    Case(
        "the next attempt takes the next reserved place",
        (
            [SnapshotNode(gpu=1, used_gpu=1)] * 3,
            [PodSetCase((GPU, GPU), 1, reserved_places=(2, 1))],
        ),
        ["2", "1"],
    ),
    Case(
        "a reserved place that has become unfit is given up",
        (
            [SnapshotNode(gpu=1), SnapshotNode(gpu=1, used_gpu=1, prefilter_fault=4)],
            [PodSetCase((GPU,), 1, reserved_places=(1,))],
        ),
        ["0"],
    ),
]


@pytest.mark.parametrize("case", PLACED, ids=ids)
def test_places(case: Case[tuple[list[SnapshotNode], list[PodSetCase]], list[str]]) -> None:
    """Rules 24 to 27."""
    nodes, podsets = case.given
    minimum = 1 if podsets[0].running else None
    assert play(snapshot_of(nodes, podsets, minimum))[0] == case.want


def test_another_group_that_is_enough_does_not_wait() -> None:
    """One of two has to wait; the other, with its later pod, is all that the PodGroup needs."""
    given = snapshot_of(
        [SnapshotNode(gpu=2, releasing_gpu=2)],
        [PodSetCase((PAIR,), 1), PodSetCase((CPU,), 2, expected=1)],
        1,
    )
    assert play(given)[0] == ["~0", "0 +0"]


def test_a_nominated_gang_takes_nothing_that_is_idle() -> None:
    """A gang that has to wait leaves what is idle to pods that can start at once."""
    _, nodes = play(snapshot_of(SOON, [PodSetCase((GPU,) * 3, 3)]))
    assert (nodes.resources.idle[:, 3].tolist(), nodes.resources.free[:, 3].tolist()) == (
        [1000, 1000],
        [0, 0],
    )


def test_a_reserved_place_is_given_up_for_its_pod() -> None:
    """The room of one pod is taken in all, wherever it went."""
    two = [SnapshotNode(gpu=1), SnapshotNode(gpu=1, used_gpu=1, prefilter_fault=4)]
    _, nodes = play(snapshot_of(two, [PodSetCase((GPU,), 1, reserved_places=(1,))]))
    assert nodes.resources.idle[:, 3].tolist() == [0, 1000]


def test_a_failure_can_be_rolled_back() -> None:
    """Its checkpoint is before the attempt, with all reserved places where they were."""
    two = [SnapshotNode(gpu=2, used_gpu=1), SnapshotNode(gpu=2)]
    given = snapshot_of(two, [PodSetCase((GPU, PAIR, PAIR), 3, reserved_places=(0,))])
    got, nodes = play(given)
    assert got == ["no room for 1 after 2"]
    assert (nodes.resources.idle == given.nodes.idle).all()


def test_a_pod_knows_its_signature() -> None:
    """The signatures of an attempt: real pods in their order, then later ones."""
    given = snapshot_of(TWO, [PodSetCase((PAIR, CPU), 4, expected=2)])
    placer = Placer(working_nodes(given), POLICIES)
    assert placer.signature_runs(tasks_to_allocate(given.podgroups[0].tree)) == (
        (PAIR, 1),
        (CPU, 1),
        (PAIR, 2),
    )


def test_reservations_name_podset_node_and_cause() -> None:
    """So that the shell that carries them out needs no plan of its own."""
    given = snapshot_of(TWO, [PodSetCase((GPU,), 2, expected=1), PodSetCase((GPU,), 2, expected=1)])
    placed = Placer(working_nodes(given), POLICIES).place(
        PlacementRequest(tasks_to_allocate(given.podgroups[0].tree), podgroup=0)
    )
    assert isinstance(placed, PodGroupAllocation)
    assert placed.reservations == (
        Reservation("a", 0, 1, ReservationCause.ANTICIPATED),
        Reservation("b", 1, 1, ReservationCause.ANTICIPATED),
    )


def test_rankings_are_kept() -> None:
    one: SchedulingSignature = SIGNATURES[GPU]
    given = snapshot_of(TWO, [PodSetCase((GPU,), 1)])
    placer = Placer(working_nodes(given), POLICIES)
    assert placer.ranking(GPU) is placer.ranking(GPU)
    assert placer.ranking(GPU).signature == one


_SPREAD: Final = build_policies(PolicySelection(gpu_placement="spread", cpu_placement="spread"))
_node: Final = st.builds(
    SnapshotNode,
    gpu=st.integers(0, 8),
    cpu=st.integers(0, 8),
    used_gpu=st.integers(0, 3),
    releasing_gpu=st.integers(0, 2),
    pods=st.integers(1, 9),
    prefilter_fault=st.sampled_from([0, 0, 0, 4]),
)


@settings(max_examples=examples(100))
@drawn(st.lists(_node, max_size=6), st.sampled_from(SIGNATURES), st.integers(1, 40), st.booleans())
@example(
    [SnapshotNode(gpu=4, used_gpu=2), SnapshotNode(gpu=4, used_gpu=1)], SIGNATURES[GPU], 2, False
)
def test_later_pods_in_a_row_lie_as_one_by_one(
    nodes: list[SnapshotNode], one: SchedulingSignature, count: int, packs: bool
) -> None:
    """Where they go, which of them wait, and how many have room if not all do."""
    build = Builder(nodes=nodes)
    podset = PodSet("a", count, expected=count, expected_signature=build.signature_row(one))
    build.podgroup(podset)
    given = build.snapshot()
    policies = POLICIES if packs else _SPREAD
    together, apart = (Placer(working_nodes(given), policies) for _ in range(2))
    in_a_row = together.place(PlacementRequest((PodSetTasks(podset, (), count),), podgroup=0))
    one_by_one = apart.place(PlacementRequest((PodSetTasks(podset, (), 1),) * count, podgroup=0))
    assert described(in_a_row) == described(one_by_one)
    for name in ("idle", "free"):
        assert (
            getattr(together.nodes.resources, name) == getattr(apart.nodes.resources, name)
        ).all()


_ZONE: Final = 0  # a column of labels, the other one is of hosts
_FRIENDS, _FOES = 0, 1  # selectors, and the terms that speak of them
_spread: Final = st.builds(
    SpreadConstraint,
    selector=st.sampled_from([_FRIENDS, _FRIENDS, _FOES]),
    key=st.integers(0, 1),
    max_skew=st.integers(1, 6),
    min_domains=st.integers(1, 3),
    counts_itself=st.just(True),
)
_SAID: Final[dict[str, st.SearchStrategy[Any]]] = {
    "affinity": st.sampled_from([(AffinityTerm(_FRIENDS, 0),), (AffinityTerm(_FRIENDS, 1),)]),
    "anti_affinity": st.sampled_from([(_FRIENDS,), (_FOES,), (_FRIENDS, _FOES)]),
    "existing_anti_affinity": st.sampled_from([(_FRIENDS,), (_FOES,)]),
    "rwo_claims": st.just((0,)),
    "rwop_claims": st.just((1,)),
    "conflicting_ports": st.just((0,)),
}


@st.composite
def _related(draw: st.DrawFn) -> SchedulingSignature:
    """Draw a pod to which others matter, and others like it may."""
    dump = {
        name: draw(_SAID[name]) for name in draw(st.sets(st.sampled_from([*_SAID]), max_size=2))
    }
    dump["spread_constraints"] = tuple(draw(st.lists(_spread, min_size=not dump, max_size=2)))
    dump["matched_selectors"] = matches = draw(
        st.sampled_from([(_FRIENDS,), (_FRIENDS, _FOES), ()])
    )
    dump["host_ports"] = draw(st.sampled_from([(), (0,)]))
    own = all(term.selector in matches for term in dump.get("affinity", ()))
    return signature(gpu=draw(st.sampled_from([0, 0, 1])), matches_own_affinity=own, **dump)


@settings(max_examples=examples(200))
@drawn(
    st.lists(st.tuples(_node, st.integers(-1, 2), st.integers(0, 9)), min_size=1, max_size=6),
    _related(),
    st.integers(1, 40),
    st.booleans(),
)
@example(
    [
        (SnapshotNode(gpu=0), 0, 0),
        (SnapshotNode(gpu=0), 0, 0),
    ],  # the fourth would be one too many beside none
    signature(
        matched_selectors=(_FRIENDS,),
        spread_constraints=(SpreadConstraint(_FRIENDS, 1, 3, 1, *[True] * 3),),
    ),
    4,
    True,
)
@example(
    [
        (SnapshotNode(gpu=0), 0, 8),
        (SnapshotNode(gpu=0), 0, 0),
    ],  # the first opens while the other is filled
    signature(
        matched_selectors=(_FRIENDS,),
        spread_constraints=(SpreadConstraint(_FRIENDS, 1, 6, 1, *[True] * 3),),
    ),
    8,
    False,
)
def test_related_pods_in_a_row_lie_as_one_by_one(
    nodes: list[tuple[SnapshotNode, int, int]], one: SchedulingSignature, count: int, packs: bool
) -> None:
    """Where others are matters to them: those of before, and those of their own."""
    build = Builder(nodes=[replace(it, labels=(zone, n)) for n, (it, zone, _) in enumerate(nodes)])
    podset = PodSet("a", count, expected=count, expected_signature=build.signature_row(one))
    build.podgroup(podset)
    none = np.zeros((2, len(nodes)), dtype=np.int32)
    crowd = no_pod_affinity(
        len(nodes),
        selector_counts=np.array([[n for *_, n in nodes], none[0]], dtype=np.int32),
        anti_affinity_terms=(AffinityTerm(_FRIENDS, _ZONE), AffinityTerm(_FOES, 1)),
        anti_affinity_counts=none,
    )
    given = build.snapshot(pod_relations=crowd)
    policies = POLICIES if packs else _SPREAD
    together, apart = (Placer(working_nodes(given), policies) for _ in range(2))
    in_a_row = together.place(PlacementRequest((PodSetTasks(podset, (), count),), podgroup=0))
    one_by_one = apart.place(PlacementRequest((PodSetTasks(podset, (), 1),) * count, podgroup=0))
    assert described(in_a_row) == described(one_by_one)
    assert (together.nodes.resources.free == apart.nodes.resources.free).all()
    assert (together.nodes.relations.selector_counts == apart.nodes.relations.selector_counts).all()


def test_a_hundred_thousand_expected_pods_are_a_few_placements() -> None:
    """Of a node that takes many in a row one entry is written, and none is listed."""
    build = Builder(nodes=[SnapshotNode(gpu=0, cpu=1000, memory=10_000, pods=1000)] * 100)
    one = build.signature_row(signature(gpu=0, cpu=0.001, memory=0))
    podset = PodSet("a", 100_000, expected=100_000, expected_signature=one)
    build.podgroup(podset)
    placer = Placer(working_nodes(build.snapshot()), POLICIES)
    tasks = tasks_to_allocate(podset)
    placed = placer.place(PlacementRequest(tasks, podgroup=0))
    assert isinstance(placed, PodGroupAllocation)
    assert [it.number for it in placed.reservations] == [1000] * 100
    assert placer.signature_runs(tasks) == ((one, 100_000),)
    assert placer.nodes.statement.checkpoint == 100
