"""The alternatives of a strategy: tried in order, all but the one that is placed leave no trace."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import pytest

from scheduler.core.gang import PodSetTasks, Tasks, tasks_to_allocate
from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace, SubGroupSet
from scheduler.core.model.rejections import DomainShortage, QueueBoundExceeded
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.result import PodGroupAllocation, Policies, QuotaRefusal, Reservation
from scheduler.core.nodes.placement import (
    MUST_WAIT,
    MustWait,
    PlacementFailure,
    PlacementRequest,
    Placer,
)
from scheduler.core.nodes.strategies.strategy import (
    ALL_NODES,
    Alternative,
    Alternatives,
    NodeSubset,
    PlacementPart,
)
from scheduler.core.nodes.working_nodes import WorkingNodes
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from tests.support.snapshot.statement_state import statement_state
from trainer_kai.api.reasons import UnschedulableReason

NODES: Final = [SnapshotNode(gpu=1), SnapshotNode(gpu=2), SnapshotNode(gpu=4)]
REFUSAL: Final = QuotaRefusal(
    UnschedulableReason.EXCEEDS_LIMIT, QueueBoundExceeded(0, ResourceKind.GPU, 0, 0, 0)
)


def only(*nodes: int, preference: tuple[float, ...] | None = None) -> NodeSubset:
    mask = np.isin(np.arange(len(NODES)), nodes)
    return NodeSubset(nodes, mask, None if preference is None else np.array(preference))


def on(subset: NodeSubset, *parts: tuple[Tasks, tuple[int, ...]]) -> tuple[PlacementPart, ...]:
    """Return the parts of an alternative that are restricted to some nodes; at first all tasks."""
    return tuple(PlacementPart(lambda _: subset, *part) for part in parts or [(None, ())])


class Listed:
    """A strategy with given alternatives, which notes what became of each."""

    key: Final = None
    fits_by_count: Final = False
    only: Final = None
    unrestricted: Final = None

    def __init__(self, *alternatives: Alternative) -> None:
        self._alternatives: Final = alternatives
        self.refused: Final[list[PodGroupAllocation | None]] = []

    def reach(self, _signature: int, /) -> NodeSubset:
        return ALL_NODES

    def shortages(self, _tasks: Tasks, /) -> Sequence[DomainShortage]:
        return ()

    def alternatives(self, _tasks: Tasks, /) -> Alternatives:
        for alternative in self._alternatives:
            self.refused.append((yield alternative))


class Pair:
    """Two pods with a GPU each, and the nodes on which they are to be placed."""

    def __init__(self, nodes: Iterable[SnapshotNode] = NODES) -> None:
        build = Builder(nodes=list(nodes))
        pods = tuple(build.waiting_pods(2, signature(gpu=1)))
        self.podset: Final = PodSet("a", 2, pods)
        build.podgroup(self.podset)
        self.large: Final = build.signature_row(signature(gpu=4))
        self.nodes: Final = WorkingNodes(build.snapshot(), Policies(scores=()))
        self.placer: Final = Placer(self.nodes, Policies(scores=()))

    def request(
        self, *alternatives: Alternative, pinned: Alternative | None = None
    ) -> PlacementRequest:
        strategy = Listed(*alternatives)
        return PlacementRequest(
            tasks_to_allocate(self.podset), strategy=strategy, podgroup=0, pinned=pinned
        )


def nodes_of(placed: object) -> list[int]:
    assert isinstance(placed, PodGroupAllocation)
    return [it.node for it in (*placed.binds, *placed.nominations)]


# the subsets of the alternatives -> the nodes of both pods, or where the last one fails
FITTING: Final[list[Case[tuple[NodeSubset, ...], list[int]]]] = [
    Case("the first that fits", (only(1), only(2)), [1, 1]),
    Case("a later one, if there is too little on the first", (only(0), only(2), only(1)), [2, 2]),
    Case("several nodes of one", (only(0), only(0, 1)), [0, 1]),
    Case("the last one", (only(), only(0), only(1)), [1, 1]),
]


@pytest.mark.parametrize("case", FITTING, ids=ids)
def test_the_first_alternative_that_fits_is_placed(
    case: Case[tuple[NodeSubset, ...], list[int]],
) -> None:
    """As if it had been the only one; on trial it is the same, and nothing is placed."""
    pair, alone = Pair(), Pair()
    alternatives = [on(subset) for subset in case.given]
    before = statement_state(pair.nodes)
    found = pair.placer.fits(pair.request(*alternatives))
    assert found is not None
    assert [it.node for it in found.pods] == case.want
    assert statement_state(pair.nodes) == before
    assert nodes_of(pair.placer.place(pair.request(*alternatives))) == case.want
    placed = next(it for it in case.given if {*case.want} <= {*it.key})
    alone.placer.place(alone.request(on(placed)))
    assert statement_state(pair.nodes) == statement_state(alone.nodes)
    assert pair.nodes.statement.checkpoint == alone.nodes.statement.checkpoint


def test_if_none_fits_the_failure_of_the_first_is_told() -> None:
    """Its pods are in the statement until it is rolled back, so that it can be explained."""
    pair = Pair()
    before = statement_state(pair.nodes)
    placed = pair.placer.place(pair.request(on(only(0)), on(only())))
    assert isinstance(placed, PlacementFailure)
    assert (placed.placed, placed.subset.key) == (1, (0,))
    assert pair.nodes.statement.checkpoint == 1
    pair.nodes.statement.roll_back(placed.checkpoint)
    assert statement_state(pair.nodes) == before
    assert pair.placer.fits(pair.request(on(only()), on(only(0)))) is None
    assert statement_state(pair.nodes) == before


def refusing(*nodes: int) -> Callable[[PodGroupAllocation, bool], QuotaRefusal | MustWait | None]:
    def check(placed: PodGroupAllocation, _is_pipelined: bool) -> QuotaRefusal | None:
        refused = {*nodes_of(placed)} & {*nodes}
        return (
            REFUSAL._replace(details=REFUSAL.details._replace(bound=min(refused)))
            if refused
            else None
        )

    return check


def test_a_refused_alternative_leaves_no_trace() -> None:
    """The strategy learns what was refused, and the next one is tried."""
    pair, alone = Pair(), Pair()
    request = pair.request(on(only(1)), on(only(0)), on(only(2)))
    assert nodes_of(pair.placer.place(request, refusing(1))) == [2, 2]
    strategy = request.strategy
    assert isinstance(strategy, Listed)
    assert [it and nodes_of(it) for it in strategy.refused] == [[1, 1], None]
    alone.placer.place(alone.request(on(only(2))))
    assert statement_state(pair.nodes) == statement_state(alone.nodes)


def test_of_several_refusals_the_first_is_told() -> None:
    """Whether the last alternative is refused or does not fit; nothing is placed."""
    for last in (only(2), only(0)):
        pair = Pair()
        before = statement_state(pair.nodes)
        request = pair.request(on(only(1)), on(only(2)), on(last))
        refused = pair.placer.place(request, refusing(1, 2))
        assert isinstance(refused, QuotaRefusal)
        assert refused.details.bound == 1
        assert statement_state(pair.nodes) == before


def test_an_alternative_that_fitted_on_trial_can_be_asked_for() -> None:
    """What was placed on trial beside it would not fit beside another one."""
    pair = Pair()
    alternatives = on(only(0)), on(only(1)), on(only(2))
    found = pair.placer.fits(pair.request(*alternatives))
    assert found is not None
    assert found.alternative is alternatives[1]
    assert nodes_of(pair.placer.place(pair.request(*alternatives, pinned=alternatives[2]))) == [
        2,
        2,
    ]
    failed = pair.placer.place(pair.request(*alternatives, pinned=alternatives[0]))
    assert isinstance(failed, PlacementFailure)


def test_what_must_wait_is_placed_once_more_and_waits() -> None:
    """On the same nodes; the check is asked again."""
    pair, asked = Pair(), []

    def check(placed: PodGroupAllocation, is_pipelined: bool) -> MustWait | None:
        asked.append((len(placed.binds), len(placed.nominations), is_pipelined))
        return None if is_pipelined else MUST_WAIT

    placed = pair.placer.place(pair.request(on(only(1))), check)
    assert isinstance(placed, PodGroupAllocation)
    assert [it.node for it in placed.nominations] == [1, 1]
    assert asked == [(2, 0, False), (0, 2, True)]
    assert pair.nodes.resources.idle[1, 3] == 2000


def test_tasks_beside_decide_which_alternative_fits() -> None:
    """The first one takes the only node with room for what is placed beside it."""
    pair = Pair([SnapshotNode(gpu=2), SnapshotNode(gpu=4), SnapshotNode(gpu=0)])
    large = PodSet("b", 0, expected_signature=pair.large)
    beside = PlacementRequest((PodSetTasks(large, (), 1),))
    before = statement_state(pair.nodes)
    found = pair.placer.fits(pair.request(on(only(1)), on(only(0))), beside)
    assert found is not None
    assert [(it.node, it.pod_count) for it in found.pods] == [(0, 1), (0, 1), (1, 1)]
    assert statement_state(pair.nodes) == before


def test_parts_have_nodes_of_their_own() -> None:
    """Pods keep their PodSets, and a pod gives up a reserved place of its own."""
    build = Builder(nodes=NODES)
    row = build.signature_row(signature(gpu=1))
    pods = tuple(build.waiting_pods(3, signature(gpu=1)))
    place = ReservedPlace(2, row, ReservationCause.ANTICIPATED)
    first = PodSet("a", 1, pods[:1])
    second = PodSet("b", 2, pods[1:], 1, 0, (place,), expected=1, expected_signature=row)
    build.podgroup(SubGroupSet("all", 2, (first, second)), is_kept=True)
    nodes = WorkingNodes(build.snapshot(), Policies(scores=()))
    tasks = (PodSetTasks(first, first.pending, 0), PodSetTasks(second, second.pending, 1))
    strategy = Listed((*on(only(1, 2), (tasks[1:], (1,))), *on(only(0), (tasks[:1], (0,)))))
    placed = Placer(nodes, Policies(scores=())).place(
        PlacementRequest(tasks, strategy=strategy, podgroup=0)
    )
    assert isinstance(placed, PodGroupAllocation)
    assert [(it.pod, it.node) for it in placed.binds] == [(pods[1], 2), (pods[2], 1), (pods[0], 0)]
    assert placed.reservations == (Reservation("b", 1, 1, ReservationCause.ANTICIPATED),)
    assert (nodes.resources.free[:, 3] // 1000).tolist() == [0, 0, 4]


def test_a_subset_can_say_which_of_its_nodes_come_first() -> None:
    """Also after a node has changed, and for expected pods in a row."""
    build = Builder(nodes=[SnapshotNode(gpu=2)] * 40)
    podset = PodSet("a", 5, tuple(build.waiting_pods(5, signature(gpu=1))))
    build.podgroup(podset)
    nodes = WorkingNodes(build.snapshot(), Policies(scores=()))
    order = NodeSubset((0,), None, preference=np.arange(40.0) % 7)
    placer, strategy = Placer(nodes, Policies(scores=())), Listed(on(order))
    request = PlacementRequest(tasks_to_allocate(podset), strategy=strategy, podgroup=0)
    assert nodes_of(placer.place(request)) == [6, 6, 13, 13, 20]
    later = PodSetTasks(PodSet("b", 0, expected_signature=0), (), 4)
    placed = placer.reserve(PlacementRequest((later,), strategy=strategy))
    assert placed == [(0, 20, 1), (0, 27, 2), (0, 34, 1)]
