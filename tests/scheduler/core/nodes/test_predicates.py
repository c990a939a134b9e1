"""Which nodes a pod may go to, rule by rule."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from scheduler.core.model.podgroup import (
    AffinityTerm,
    LabelRequirement,
    SchedulingSignature,
    SpreadConstraint,
)
from scheduler.core.model.rejections import FitErrorReason
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import NodeFault
from scheduler.core.nodes.pod_relations import DYNAMIC_PREDICATES, has_no_relations
from scheduler.core.nodes.predicates import STATIC_PREDICATES, fits_empty_node
from scheduler.core.nodes.working_nodes import WorkingNodes
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from tests.support.snapshot.random_snapshots import no_pod_affinity
from tests.support.snapshot.statement_state import working_nodes

ZONE, DISK = 0, 1  # keys
A, B, C = 0, 1, 2  # their values
FAULTS: Final = [SnapshotNode(prefilter_fault=fault) for fault in NodeFault]
LABELLED: Final = [
    SnapshotNode(labels=(A, A)),
    SnapshotNode(labels=(A, B)),
    SnapshotNode(labels=(B, NONE)),
    SnapshotNode(labels=(NONE, A)),
]
TAINTED: Final = [SnapshotNode(taints=(t, u)) for t in (False, True) for u in (False, True)]


def wants(key: int, *codes: int) -> LabelRequirement:
    return LabelRequirement(key, frozenset(codes))


def selects(*entries: tuple[tuple[LabelRequirement, ...], ...]) -> SchedulingSignature:
    """Return the signature of a pod that selects nodes: of each entry one alternative holds."""
    return signature(node_affinity=entries)


# nodes, a signature -> the nodes that can take the pod when they are empty
STATIC_CASES: list[Case[tuple[list[SnapshotNode], SchedulingSignature], list[int]]] = [
    Case("a node with a fault takes nothing", (FAULTS, signature()), [0]),
    Case("a taint keeps out a pod that does not tolerate it", (TAINTED, signature()), [0]),
    Case(
        "a pod that tolerates it fits",
        (TAINTED, signature(tolerated_taints=frozenset({1}))),
        [0, 1],
    ),
    Case(
        "all taints must be tolerated",
        (TAINTED, signature(tolerated_taints=frozenset({0, 1}))),
        [0, 1, 2, 3],
    ),
    Case("a pod without a selector fits anywhere", (LABELLED, signature()), [0, 1, 2, 3]),
    Case(
        "a value selects the nodes that have it", (LABELLED, selects(((wants(ZONE, A),),))), [0, 1]
    ),
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
        (
            [SnapshotNode(gpu=4), SnapshotNode(gpu=8, used_gpu=8), SnapshotNode(gpu=7)],
            signature(gpu=8),
        ),
        [1],
    ),
    Case("too small in CPU", ([SnapshotNode(cpu=4), SnapshotNode(cpu=5)], signature(cpu=5)), [1]),
    Case("no place for a pod", ([SnapshotNode(pods=0), SnapshotNode(pods=1)], signature()), [1]),
    Case("of 0 nothing is needed", ([SnapshotNode(cpu=0, gpu=0)], signature(cpu=0)), [0]),
]


@pytest.mark.parametrize("case", STATIC_CASES, ids=ids)
def test_what_depends_on_the_node_itself(
    case: Case[tuple[list[SnapshotNode], SchedulingSignature], list[int]],
) -> None:
    nodes, one = case.given
    assert (
        np.flatnonzero(fits_empty_node(Builder(nodes=nodes).snapshot(), one)).tolist() == case.want
    )


@pytest.mark.parametrize(
    ("fit_error_reason", "fault"),
    [
        (FitErrorReason.LEAVING, NodeFault.LEAVING),
        (FitErrorReason.CORDONED, NodeFault.CORDONED),
        (FitErrorReason.NOT_READY, NodeFault.NOT_READY),
        (FitErrorReason.PRESSURE, NodeFault.PRESSURE),
        (FitErrorReason.NO_NETWORK, NodeFault.NO_NETWORK),
    ],
)
def test_faults_are_distinguished(fit_error_reason: FitErrorReason, fault: NodeFault) -> None:
    passes = dict(STATIC_PREDICATES)[fit_error_reason](
        Builder(nodes=FAULTS).snapshot(), signature()
    )
    assert np.flatnonzero(~passes).tolist() == [fault]


ROWS: Final = (
    *(obstacle for obstacle, _ in STATIC_PREDICATES),
    *(obstacle for obstacle, *_ in DYNAMIC_PREDICATES),
)


def test_rules_are_asked_in_the_order_of_obstacles() -> None:
    """Of several obstacles the first is counted."""
    assert [FitErrorReason.DOMAIN, *ROWS, FitErrorReason.ROOM] == list(FitErrorReason)


class Given(NamedTuple):
    """Where others are, and the pod to place."""

    signature: SchedulingSignature
    nodes: list[SnapshotNode] = LABELLED
    counts: tuple[int, ...] = (0, 0, 0, 0)
    anti_affinity_counts: tuple[int, ...] = (0, 0, 0, 0)
    ports: tuple[int, ...] = (0, 0, 0, 0)
    more: Mapping[str, Any] = MappingProxyType({})


def near(*terms: AffinityTerm, is_first: bool = False, **more: Any) -> SchedulingSignature:
    return signature(affinity=terms, matches_own_affinity=is_first, **more)


def even(**more: Any) -> SpreadConstraint:
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
    return SpreadConstraint(**{**table, **more})


TERM: Final = AffinityTerm(0, ZONE)
IN_USE: Final = {"claim_node": (1, 2), "claim_users": (1, 1)}
LOOSE: Final = even(honours_affinity=False)
ZONES: Final = [SnapshotNode(labels=(zone,), taints=(zone == C,)) for zone in (A, A, B, C)]

# the others, and the pod to place -> the nodes that the others leave open
DYNAMIC_CASES: list[Case[Given, list[int]]] = [
    Case("a claim in use is only there", Given(signature(rwo_claims=(0,)), more=IN_USE), [1]),
    Case(
        "a volume claim that no pod uses fits anywhere",
        Given(signature(rwo_claims=(0,))),
        [0, 1, 2, 3],
    ),
    Case("claims in use at two places", Given(signature(rwo_claims=(0, 1)), more=IN_USE), []),
    Case("a claim of one pod, in use", Given(signature(rwop_claims=(0,)), more=IN_USE), []),
    Case("a claim of one pod, free", Given(signature(rwop_claims=(0,))), [0, 1, 2, 3]),
    Case("a port in use", Given(signature(conflicting_ports=(0,)), ports=(1, 0, 2, 0)), [1, 3]),
    Case(
        "another port in use",
        Given(signature(conflicting_ports=(1,)), ports=(1, 0, 2, 0)),
        [0, 1, 2, 3],
    ),
    Case("near friends: in their zone", Given(near(TERM), counts=(0, 3, 0, 0)), [0, 1]),
    Case(
        "near friends of two kinds",
        Given(near(TERM, AffinityTerm(0, DISK)), counts=(1, 0, 0, 0)),
        [0],
    ),
    Case("no pod to be near to", Given(near(TERM)), []),
    Case(
        "the first of its kind may go wherever there is a zone",
        Given(near(TERM, is_first=True)),
        [0, 1, 2],
    ),
    Case(
        "the first needs the labels of all terms",
        Given(near(TERM, AffinityTerm(0, DISK), is_first=True)),
        [0, 1],
    ),
    Case(
        "once there is one, no pod is the first",
        Given(near(TERM, is_first=True), counts=(0, 0, 1, 0)),
        [2],
    ),
    Case(
        "friends on a node without a zone are near no pod",
        Given(near(TERM, is_first=True), counts=(0, 0, 0, 5)),
        [0, 1, 2],
    ),
    Case(
        "a pod that keeps away from others",
        Given(
            signature(anti_affinity=(0,)), counts=(1, 0, 0, 0), anti_affinity_counts=(0, 0, 1, 0)
        ),
        [2, 3],
    ),
    Case(
        "a pod that others keep away",
        Given(
            signature(existing_anti_affinity=(0,)),
            counts=(1, 0, 0, 0),
            anti_affinity_counts=(0, 0, 1, 0),
        ),
        [0, 1, 3],
    ),
    Case(
        "both directions of anti-affinity close nodes",
        Given(
            signature(anti_affinity=(0,), existing_anti_affinity=(0,)),
            counts=(1, 0, 0, 0),
            anti_affinity_counts=(0, 0, 1, 0),
        ),
        [3],
    ),
    Case(
        "a foe without a zone bars no pod",
        Given(signature(anti_affinity=(0,)), counts=(0, 0, 0, 1)),
        [0, 1, 2, 3],
    ),
    Case(
        "the fullest zone is closed",
        Given(signature(spread_constraints=(LOOSE,)), counts=(1, 0, 0, 0)),
        [2],
    ),
    Case(
        "as even as allowed",
        Given(signature(spread_constraints=(LOOSE,)), counts=(1, 0, 1, 0)),
        [0, 1, 2],
    ),
    Case(
        "a larger skew",
        Given(signature(spread_constraints=(even(max_skew=2),)), counts=(1, 1, 1, 0)),
        [0, 1, 2],
    ),
    Case(
        "a pod that does not count itself",
        Given(signature(spread_constraints=(even(counts_itself=False),)), counts=(1, 0, 0, 0)),
        [0, 1, 2],
    ),
    Case(
        "too few zones count as an empty one",
        Given(signature(spread_constraints=(even(min_domains=3),)), counts=(1, 0, 0, 0)),
        [2],
    ),
    Case(
        "enough zones leave all of them open",
        Given(signature(spread_constraints=(even(min_domains=2),)), counts=(1, 0, 1, 0)),
        [0, 1, 2],
    ),
    Case(
        "too few zones, all of them full",
        Given(signature(spread_constraints=(even(min_domains=3),)), counts=(1, 0, 1, 0)),
        [],
    ),
    Case(
        "a zone it may not choose makes no domain",
        Given(
            signature(spread_constraints=(even(),), node_affinity=(((wants(ZONE, A, B),),),)),
            ZONES,
            counts=(1, 0, 1, 0),
        ),
        [0, 1, 2, 3],
    ),
    Case(
        "unless it says so",
        Given(
            signature(spread_constraints=(LOOSE,), node_affinity=(((wants(ZONE, A, B),),),)),
            ZONES,
            counts=(1, 0, 1, 0),
        ),
        [3],
    ),
    Case(
        "taints make domains all the same",
        Given(signature(spread_constraints=(even(),)), ZONES, counts=(1, 0, 1, 0)),
        [3],
    ),
    Case(
        "unless they are honoured",
        Given(
            signature(spread_constraints=(even(honours_taints=True),)), ZONES, counts=(1, 0, 1, 0)
        ),
        [0, 1, 2, 3],
    ),
    Case(
        "a node without one of the labels does not count",
        Given(
            signature(spread_constraints=(LOOSE, even(key=DISK, max_skew=9))), counts=(1, 0, 0, 0)
        ),
        [0, 1],
    ),
    Case(
        "over a label that no node has",
        Given(signature(spread_constraints=(LOOSE,)), [SnapshotNode(labels=(NONE,))] * 4),
        [],
    ),
]


def described(given: Given) -> WorkingNodes:
    """Return the nodes of what is given."""
    crowd = no_pod_affinity(
        len(given.nodes),
        selector_counts=np.array([given.counts], dtype=np.int32),
        anti_affinity_counts=np.array([given.anti_affinity_counts], dtype=np.int32),
        **given.more,
    )
    snapshot = Builder(nodes=given.nodes).snapshot(pod_relations=crowd)
    nodes = working_nodes(snapshot)
    nodes.relations.ports[:, 0] = given.ports
    return nodes


@pytest.mark.parametrize("case", DYNAMIC_CASES, ids=ids)
def test_what_depends_on_others(case: Case[Given, list[int]]) -> None:
    """Claims, ports, affinity, anti-affinity of both sides, spread."""
    passed = described(case.given).relations.passing(case.given.signature)
    assert passed is not None
    assert np.flatnonzero(passed).tolist() == case.want
    assert not has_no_relations(case.given.signature)


def test_a_pod_without_terms_is_not_checked() -> None:
    """Matching a selector, or taking a port, is the concern of others."""
    one = signature(gpu=1, matched_selectors=(0,), host_ports=(0,))
    assert has_no_relations(one)
    assert described(Given(one)).relations.passing(one) is None


def _first_then_second(first: SchedulingSignature, second: SchedulingSignature) -> list[int]:
    build = Builder(nodes=LABELLED)
    rows = [build.signature_row(first), build.signature_row(second)]
    nodes = working_nodes(build.snapshot(pod_relations=no_pod_affinity(4)))
    nodes.statement.allocate(0, rows[0], on_idle=True)
    passed = nodes.relations.passing(second)
    return [0, 1, 2, 3] if passed is None else np.flatnonzero(passed).tolist()


# a pod that is placed on node 0, the next one -> the nodes open to the next
AFTER: list[Case[tuple[SchedulingSignature, SchedulingSignature], list[int]]] = [
    Case(
        "a follower goes to the zone of the first",
        (signature(matched_selectors=(0,)), near(TERM)),
        [0, 1],
    ),
    Case(
        "a hermit after others",
        (signature(matched_selectors=(0,)), signature(anti_affinity=(0,))),
        [2, 3],
    ),
    Case(
        "others after a hermit",
        (signature(anti_affinity=(0,)), signature(existing_anti_affinity=(0,))),
        [2, 3],
    ),
    Case("strangers after a hermit", (signature(anti_affinity=(0,)), signature()), [0, 1, 2, 3]),
    Case(
        "the same port", (signature(host_ports=(3,)), signature(conflicting_ports=(3,))), [1, 2, 3]
    ),
    Case("the same claim", (signature(rwo_claims=(0,)), signature(rwo_claims=(0,))), [0]),
    Case(
        "the same claim of one pod", (signature(rwop_claims=(0,)), signature(rwop_claims=(0,))), []
    ),
    Case(
        "an even spread leaves the other zone",
        (signature(matched_selectors=(0,)), signature(spread_constraints=(LOOSE,))),
        [2],
    ),
]


@pytest.mark.parametrize("case", AFTER, ids=ids)
def test_what_is_placed_counts_at_once(
    case: Case[tuple[SchedulingSignature, SchedulingSignature], list[int]],
) -> None:
    """The next pod of the same plan sees the pods that were placed before it."""
    assert _first_then_second(*case.given) == case.want


def test_a_cluster_without_nodes_takes_no_pod() -> None:
    assert fits_empty_node(Builder().snapshot(), signature(gpu=1)).tolist() == []
