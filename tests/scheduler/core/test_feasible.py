"""Which nodes a pod may go to, rule by rule."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from scheduler.core.decision import Obstacle
from scheduler.core.feasible import FIXED, MOVING, fixed, is_unmoved, moving
from scheduler.core.ledger import Ledger
from scheduler.core.model import NONE, NodeFault, Require, Shape, Spread, Term
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, shape
from tests.support.snapshotted import neighbours

ZONE, DISK = 0, 1  # keys
A, B, C = 0, 1, 2  # their values
FAULTS: Final = [Node(fault=fault) for fault in NodeFault]
LABELLED: Final = [
    Node(labels=(A, A)),
    Node(labels=(A, B)),
    Node(labels=(B, NONE)),
    Node(labels=(NONE, A)),
]
TAINTED: Final = [Node(taints=(t, u)) for t in (False, True) for u in (False, True)]


def wants(key: int, *codes: int) -> Require:
    """Return a requirement."""
    return Require(key, frozenset(codes))


def selects(*entries: tuple[tuple[Require, ...], ...]) -> Shape:
    """Return the shape of a pod that selects nodes: of each entry one alternative holds."""
    return shape(any_of=entries)


# nodes, a shape -> the nodes that can take the pod when they are empty
FIXED_CASES: list[Case[tuple[list[Node], Shape], list[int]]] = [
    Case("a node with a fault takes nothing", (FAULTS, shape()), [0]),
    Case("a taint keeps out who does not tolerate it", (TAINTED, shape()), [0]),
    Case("who tolerates it may go", (TAINTED, shape(tolerates=frozenset({1}))), [0, 1]),
    Case(
        "all taints must be tolerated", (TAINTED, shape(tolerates=frozenset({0, 1}))), [0, 1, 2, 3]
    ),
    Case("who selects nothing may go anywhere", (LABELLED, shape()), [0, 1, 2, 3]),
    Case("a value", (LABELLED, selects(((wants(ZONE, A),),))), [0, 1]),
    Case("one of several values", (LABELLED, selects(((wants(DISK, A, B),),))), [0, 1, 3]),
    Case("a label that may lack", (LABELLED, selects(((wants(ZONE, NONE, B),),))), [2, 3]),
    Case(
        "all that one alternative says",
        (LABELLED, selects(((wants(ZONE, A), wants(DISK, A)),))),
        [0],
    ),
    Case(
        "one of two alternatives",
        (LABELLED, selects(((wants(ZONE, B),), (wants(DISK, B),)))),
        [1, 2],
    ),
    Case(
        "one alternative of each entry",
        (LABELLED, selects(((wants(ZONE, A),),), ((wants(DISK, B),), (wants(DISK, NONE),)))),
        [1],
    ),
    Case("an entry without alternatives cannot hold", (LABELLED, selects(())), []),
    Case("a value that no node has", (LABELLED, selects(((wants(ZONE, C),),))), []),
    Case(
        "too small even when empty; what is taken does not matter",
        ([Node(gpu=4), Node(gpu=8, used_gpu=8), Node(gpu=7)], shape(gpu=8)),
        [1],
    ),
    Case("too small in CPU", ([Node(cpu=4), Node(cpu=5)], shape(cpu=5)), [1]),
    Case("no place for a pod", ([Node(pods=0), Node(pods=1)], shape()), [1]),
    Case("of 0 nothing is needed", ([Node(cpu=0, gpu=0)], shape(cpu=0)), [0]),
]


@pytest.mark.parametrize("case", FIXED_CASES, ids=ids)
def test_what_depends_on_the_node_itself(case: Case[tuple[list[Node], Shape], list[int]]) -> None:
    """Faults, taints, labels and size."""
    nodes, one = case.given
    assert np.flatnonzero(fixed(Builder(nodes=nodes).snapshot(), one)).tolist() == case.want


@pytest.mark.parametrize(
    ("obstacle", "fault"),
    [
        (Obstacle.CORDONED, NodeFault.CORDONED),
        (Obstacle.NOT_READY, NodeFault.NOT_READY),
        (Obstacle.PRESSURE, NodeFault.PRESSURE),
        (Obstacle.NO_NETWORK, NodeFault.NO_NETWORK),
    ],
)
def test_every_fault_is_told_apart(obstacle: Obstacle, fault: NodeFault) -> None:
    """So that a sentence can say how many nodes have which."""
    passes = dict(FIXED)[obstacle](Builder(nodes=FAULTS).snapshot(), shape())
    assert np.flatnonzero(~passes).tolist() == [fault]


ROWS: Final = (*(obstacle for obstacle, _ in FIXED), *(obstacle for obstacle, *_ in MOVING))


def test_rules_are_asked_in_the_order_of_obstacles() -> None:
    """Of several obstacles the first is counted."""
    assert [*ROWS, Obstacle.ROOM] == list(Obstacle)


class Given(NamedTuple):
    """Where others are, and who asks."""

    shape: Shape
    nodes: list[Node] = LABELLED
    counts: tuple[int, ...] = (0, 0, 0, 0)
    holders: tuple[int, ...] = (0, 0, 0, 0)
    ports: tuple[int, ...] = (0, 0, 0, 0)
    more: Mapping[str, Any] = MappingProxyType({})


def near(*terms: Term, is_first: bool = False, **more: Any) -> Shape:
    """Return the shape of a pod that wants to be near others."""
    return shape(near=terms, is_own_neighbour=is_first, **more)


def even(**more: Any) -> Spread:
    """Return a constraint: over zones, a difference of one, as Kubernetes has it by default."""
    table: dict[str, Any] = {
        "selector": 0,
        "key": ZONE,
        "max_skew": 1,
        "min_domains": 1,
        "counts_itself": True,
        "honours_affinity": True,
        "honours_taints": False,
    }
    return Spread(**{**table, **more})


TERM: Final = Term(0, ZONE)
IN_USE: Final = {"claim_node": (1, 2), "claim_users": (1, 1)}
LOOSE: Final = even(honours_affinity=False)
ZONES: Final = [Node(labels=(zone,), taints=(zone == C,)) for zone in (A, A, B, C)]

# the others, and who asks -> the nodes that the others leave open
MOVING_CASES: list[Case[Given, list[int]]] = [
    Case("a claim in use is only there", Given(shape(claims=(0,)), more=IN_USE), [1]),
    Case("a claim that nobody uses may go anywhere", Given(shape(claims=(0,))), [0, 1, 2, 3]),
    Case("claims in use at two places", Given(shape(claims=(0, 1)), more=IN_USE), []),
    Case("a claim of one pod, in use", Given(shape(own_claims=(0,)), more=IN_USE), []),
    Case("a claim of one pod, free", Given(shape(own_claims=(0,))), [0, 1, 2, 3]),
    Case("a port in use", Given(shape(avoids=(0,)), ports=(1, 0, 2, 0)), [1, 3]),
    Case("another port in use", Given(shape(avoids=(1,)), ports=(1, 0, 2, 0)), [0, 1, 2, 3]),
    Case("near friends: in their zone", Given(near(TERM), counts=(0, 3, 0, 0)), [0, 1]),
    Case("near friends of two kinds", Given(near(TERM, Term(0, DISK)), counts=(1, 0, 0, 0)), [0]),
    Case("nobody to be near to", Given(near(TERM)), []),
    Case(
        "the first of its kind may go wherever there is a zone",
        Given(near(TERM, is_first=True)),
        [0, 1, 2],
    ),
    Case(
        "the first needs the labels of all terms",
        Given(near(TERM, Term(0, DISK), is_first=True)),
        [0, 1],
    ),
    Case(
        "once there is one, nobody is the first",
        Given(near(TERM, is_first=True), counts=(0, 0, 1, 0)),
        [2],
    ),
    Case(
        "friends on a node without a zone are near nobody",
        Given(near(TERM, is_first=True), counts=(0, 0, 0, 5)),
        [0, 1, 2],
    ),
    Case(
        "who keeps away from others",
        Given(shape(apart=(0,)), counts=(1, 0, 0, 0), holders=(0, 0, 1, 0)),
        [2, 3],
    ),
    Case(
        "whom others keep away",
        Given(shape(shunned=(0,)), counts=(1, 0, 0, 0), holders=(0, 0, 1, 0)),
        [0, 1, 3],
    ),
    Case(
        "both",
        Given(shape(apart=(0,), shunned=(0,)), counts=(1, 0, 0, 0), holders=(0, 0, 1, 0)),
        [3],
    ),
    Case(
        "a foe without a zone bars nobody",
        Given(shape(apart=(0,)), counts=(0, 0, 0, 1)),
        [0, 1, 2, 3],
    ),
    Case("the fullest zone is closed", Given(shape(spread=(LOOSE,)), counts=(1, 0, 0, 0)), [2]),
    Case("as even as allowed", Given(shape(spread=(LOOSE,)), counts=(1, 0, 1, 0)), [0, 1, 2]),
    Case(
        "a larger skew",
        Given(shape(spread=(even(max_skew=2),)), counts=(1, 1, 1, 0)),
        [0, 1, 2],
    ),
    Case(
        "who does not count itself",
        Given(shape(spread=(even(counts_itself=False),)), counts=(1, 0, 0, 0)),
        [0, 1, 2],
    ),
    Case(
        "too few zones count as an empty one",
        Given(shape(spread=(even(min_domains=3),)), counts=(1, 0, 0, 0)),
        [2],
    ),
    Case(
        "enough zones",
        Given(shape(spread=(even(min_domains=2),)), counts=(1, 0, 1, 0)),
        [0, 1, 2],
    ),
    Case(
        "too few zones, all of them full",
        Given(shape(spread=(even(min_domains=3),)), counts=(1, 0, 1, 0)),
        [],
    ),
    Case(
        "a zone it may not choose makes no domain",
        Given(
            shape(spread=(even(),), any_of=(((wants(ZONE, A, B),),),)), ZONES, counts=(1, 0, 1, 0)
        ),
        [0, 1, 2, 3],
    ),
    Case(
        "unless it says so",
        Given(
            shape(spread=(LOOSE,), any_of=(((wants(ZONE, A, B),),),)), ZONES, counts=(1, 0, 1, 0)
        ),
        [3],
    ),
    Case(
        "taints make domains all the same",
        Given(shape(spread=(even(),)), ZONES, counts=(1, 0, 1, 0)),
        [3],
    ),
    Case(
        "unless they are honoured",
        Given(shape(spread=(even(honours_taints=True),)), ZONES, counts=(1, 0, 1, 0)),
        [0, 1, 2, 3],
    ),
    Case(
        "a node without one of the labels does not count",
        Given(shape(spread=(LOOSE, even(key=DISK, max_skew=9))), counts=(1, 0, 0, 0)),
        [0, 1],
    ),
    Case(
        "over a label that no node has",
        Given(shape(spread=(LOOSE,)), [Node(labels=(NONE,))] * 4),
        [],
    ),
]


def told(given: Given) -> Ledger:
    """Return the ledger of what is given."""
    crowd = neighbours(
        len(given.nodes),
        counts=np.array([given.counts], dtype=np.int32),
        holders=np.array([given.holders], dtype=np.int32),
        **given.more,
    )
    snapshot = Builder(nodes=given.nodes).snapshot(neighbours=crowd)
    ledger = Ledger(snapshot)
    ledger.ports[:, 0] = given.ports
    return ledger


@pytest.mark.parametrize("case", MOVING_CASES, ids=ids)
def test_what_depends_on_others(case: Case[Given, list[int]]) -> None:
    """Claims, ports, affinity, anti-affinity of both sides, spread."""
    passed = moving(told(case.given), case.given.shape)
    assert passed is not None
    assert np.flatnonzero(passed).tolist() == case.want
    assert not is_unmoved(case.given.shape)


def test_who_cares_for_nobody_is_not_asked() -> None:
    """Matching a selector, or taking a port, is the concern of others."""
    one = shape(gpu=1, matches=(0,), takes=(0,))
    assert is_unmoved(one)
    assert moving(told(Given(one)), one) is None


def _first_then_second(first: Shape, second: Shape) -> list[int]:
    build = Builder(nodes=LABELLED)
    rows = [build.shape(first), build.shape(second)]
    ledger = Ledger(build.snapshot(neighbours=neighbours(4)))
    ledger.take(0, rows[0], is_now=True)
    passed = moving(ledger, second)
    return [0, 1, 2, 3] if passed is None else np.flatnonzero(passed).tolist()


# a pod that is placed on node 0, the next one -> the nodes open to the next
AFTER: list[Case[tuple[Shape, Shape], list[int]]] = [
    Case("a follower", (shape(matches=(0,)), near(TERM)), [0, 1]),
    Case("a hermit after others", (shape(matches=(0,)), shape(apart=(0,))), [2, 3]),
    Case("others after a hermit", (shape(apart=(0,)), shape(shunned=(0,))), [2, 3]),
    Case("strangers after a hermit", (shape(apart=(0,)), shape()), [0, 1, 2, 3]),
    Case("the same port", (shape(takes=(3,)), shape(avoids=(3,))), [1, 2, 3]),
    Case("the same claim", (shape(claims=(0,)), shape(claims=(0,))), [0]),
    Case("the same claim of one pod", (shape(own_claims=(0,)), shape(own_claims=(0,))), []),
    Case("evenly", (shape(matches=(0,)), shape(spread=(LOOSE,))), [2]),
]


@pytest.mark.parametrize("case", AFTER, ids=ids)
def test_what_is_placed_counts_at_once(case: Case[tuple[Shape, Shape], list[int]]) -> None:
    """The next pod of the same plan sees who was placed before it."""
    assert _first_then_second(*case.given) == case.want


def test_a_cluster_without_nodes_takes_nobody() -> None:
    """And nothing breaks."""
    assert fixed(Builder().snapshot(), shape(gpu=1)).tolist() == []
