"""Placement by topology: which domain pods get, and on which of its nodes they are.

A cluster is written as the domains of its nodes with their free GPUs: "a/1:8,4" are two nodes in
rack 1 of block a, and "-:8" is a node in no domain. All nodes have 8 GPUs, unless more are free.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace, SubGroupSet
from scheduler.core.model.resources import Ints
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot, SnapshotNodes
from scheduler.core.model.topology import DomainConstraint
from scheduler.core.nodes.strategies.domains import FirstDomain, NodesInUse, TopologyDomains
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.core.plan import plan
from scheduler.policies.registry import PluginSelection, PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action

BLOCK, RACK = 0, 1
POLICIES: Final = build_policies(PolicySelection())
IN_RACK: Final = DomainConstraint(0, required=RACK)
IN_BLOCK: Final = DomainConstraint(0, required=BLOCK)
NEAR_RACK: Final = DomainConstraint(0, preferred=RACK)
NEAR_BLOCK: Final = DomainConstraint(0, preferred=BLOCK)
RACK_IN_BLOCK: Final = DomainConstraint(0, required=BLOCK, preferred=RACK)


def nodes_of(layout: str) -> list[SnapshotNode]:
    """Read the nodes of a cluster."""
    found = []
    for part in layout.split():
        path, _, frees = part.partition(":")
        for free in map(int, frees.split(",")):
            where = () if path == "-" else tuple(path.split("/"))
            size = max(free, 8)
            found.append(SnapshotNode(gpu=size, used_gpu=size - free, path=where))
    return found


def _with_idle(snapshot: Snapshot, idle: Ints) -> SnapshotNodes:
    return replace(snapshot.nodes, idle=idle)


def binds_of(made: Plan) -> dict[int, int]:
    """Return the nodes of the pods that start or are nominated."""
    placed = [it for one in made.allocations for it in (*one.binds, *one.nominations)]
    return {it.pod: it.node for it in placed}


def names_by_node(layout: str, made: Plan) -> str:
    """Return the domains of the pods in their order, each once for neighbours."""
    nodes, found = nodes_of(layout), list[str]()
    for _, node in sorted(binds_of(made).items()):
        name = "/".join(nodes[node].path) or "-"
        if found and found[-1].split("*")[0] == name:
            found[-1] = f"{name}*{int(found[-1].split('*')[1]) + 1}"
        else:
            found.append(f"{name}*1")
    return " ".join(found)


class Gang(NamedTuple):
    """A gang of equal pods."""

    layout: str
    pods: int
    gpu: float
    constraint: DomainConstraint | None


# A gang in a cluster, and the domains of its pods in their order; empty if it waits.
GANGS: Final[list[Case[Gang, str]]] = [
    Case("the only rack that fits", Gang("a/1:4 a/2:8", 2, 4, IN_RACK), "a/2*2"),
    Case("the fullest that fits", Gang("a/1:8,8 a/2:8 b/3:8,8,8,8", 2, 4, IN_RACK), "a/2*2"),
    Case("of equal ones the first by name", Gang("a/3:8 a/2:8 a/1:8", 2, 4, IN_RACK), "a/1*2"),
    Case("none fits, though all together do", Gang("a/1:4 a/2:4 b/3:4", 2, 4, IN_RACK), ""),
    Case("free in a rack, but on no node", Gang("a/1:3,3,3 a/2:3", 2, 4, IN_RACK), ""),
    Case("free in sum, but too little by node", Gang("a/1:3,3,3 a/2:4,4", 2, 4, IN_RACK), "a/2*2"),
    Case("several nodes of one rack", Gang("a/1:8,8 b/2:8", 4, 4, IN_RACK), "a/1*4"),
    Case("a block", Gang("a/1:8 a/2:8 b/3:8", 4, 4, IN_BLOCK), "a/1*2 a/2*2"),
    Case("the fullest block", Gang("a/1:8 a/2:8 b/3:8 b/4:4", 3, 4, IN_BLOCK), "b/4*1 b/3*2"),
    Case("a single pod", Gang("a/1:8,8 a/2:8", 1, 4, IN_RACK), "a/2*1"),
    Case("never a node in no domain", Gang("-:8 a/1:4", 2, 4, IN_RACK), ""),
    Case("a rack that is wide enough", Gang("-:8 a/1:8,8", 4, 4, IN_RACK), "a/1*4"),
    Case("no node is in a domain", Gang("-:8 -:8", 2, 4, None), "-*2"),
    Case("the fuller of two blocks comes first", Gang("a/1:8 a/2:8 b/3:8", 2, 4, IN_RACK), "b/3*2"),
    Case(
        "the fullest rack of the fullest block",
        Gang("a/1:8 a/2:4,4,4,4 b/3:8,8 b/4:8,8", 2, 4, IN_RACK),
        "a/1*2",
    ),
    Case("preferred, and it fits", Gang("a/1:8,8 a/2:8", 2, 4, NEAR_RACK), "a/2*2"),
    Case(
        "preferred, and only the block fits",
        Gang("a/1:4 a/2:4 b/3:4", 2, 4, NEAR_RACK),
        "a/2*1 a/1*1",
    ),
    Case(
        "preferred, and only the cluster fits", Gang("a/1:4 b/2:4", 2, 4, NEAR_RACK), "b/2*1 a/1*1"
    ),
    Case(
        "a block is preferred, and fits", Gang("a/1:4 b/2:4 b/3:4", 2, 4, NEAR_BLOCK), "b/2*1 b/3*1"
    ),
    Case(
        "a block is preferred, and does not", Gang("a/1:4 b/2:4", 2, 4, NEAR_BLOCK), "b/2*1 a/1*1"
    ),
    Case("preferred up to a node in no domain", Gang("-:4 a/1:4", 2, 4, NEAR_RACK), "a/1*1 -*1"),
    Case(
        "the emptiest rack of a block is used first",
        Gang("a/1:4 a/2:8 a/3:4 b/4:4", 3, 4, NEAR_RACK),
        "a/2*2 a/3*1",
    ),
    Case(
        "racks in the order of what is free",
        Gang("a/1:2 a/2:6 a/3:4", 6, 2, RACK_IN_BLOCK),
        "a/2*3 a/3*2 a/1*1",
    ),
    Case(
        "a rack is preferred in a required block", Gang("a/1:8 a/2:8", 2, 4, RACK_IN_BLOCK), "a/1*2"
    ),
    Case(
        "the fullest block though its racks are scattered",
        Gang("a/1:4 a/2:4 b/3:4 b/4:4 b/5:4", 2, 4, RACK_IN_BLOCK),
        "a/2*1 a/1*1",
    ),
    Case(
        "a rack of an emptier block before a fuller block",
        Gang("a/1:4 a/2:4 b/3:8 b/4:4", 2, 4, RACK_IN_BLOCK),
        "b/3*2",
    ),
    Case("no block fits", Gang("a/1:4 b/3:4", 2, 4, RACK_IN_BLOCK), ""),
    Case("pods without GPUs need CPU", Gang("a/1:0,0 b/2:0", 65, 0, IN_RACK), "a/1*65"),
    Case("without a constraint the fuller rack", Gang("a/1:8,8 a/2:8", 1, 4, None), "a/2*1"),
    Case("the fuller block before it", Gang("a/1:8,8 b/2:8,8 b/3:8", 1, 4, None), "a/1*1"),
    Case("and before all a node in no domain", Gang("a/1:8 -:8", 1, 4, None), "-*1"),
    Case("but only of equal nodes", Gang("a/1:8,4 a/2:8", 1, 4, None), "a/1*1"),
    Case("many pods on many nodes", Gang("a/1:8,8,8 b/2:8,8", 16, 1, IN_RACK), "b/2*16"),
]


@pytest.mark.parametrize("case", GANGS, ids=ids)
def test_gangs(case: Case[Gang, str]) -> None:
    """All pods of a gang, in their order."""
    layout, pods, gpu, constraint = case.given
    build = Builder(nodes=nodes_of(layout))
    rows = build.waiting_pods(pods, signature(gpu=gpu))
    build.podgroup(PodSet("default", pods, rows, domains=constraint))

    assert names_by_node(layout, plan(build.snapshot(), POLICIES)) == case.want


class Set(NamedTuple):
    """A sub-group of equal pods."""

    pods: int
    gpu: float
    constraint: DomainConstraint | None = None


class Tree(NamedTuple):
    """A PodGroup of sub-groups."""

    layout: str
    constraint: DomainConstraint | None
    sets: Sequence[Set]


# Sub-groups in a cluster, and the domains of their pods in their order.
TREES: Final[list[Case[Tree, str]]] = [
    Case(
        "segments, each in a rack, in one block",
        Tree("a/1:8 a/2:4 a/3:8 b/4:8 b/5:8", IN_BLOCK, [Set(2, 4, IN_RACK)] * 2),
        "b/4*2 b/5*2",
    ),
    Case(
        "two segments share a rack",
        Tree("a/1:8,8 b/4:8 b/5:8,4", IN_BLOCK, [Set(2, 4, IN_RACK)] * 2),
        "a/1*4",
    ),
    Case(
        "a block has enough in all, but its racks have not",
        Tree("a/1:4 a/2:4 a/3:4 a/4:4 b/5:8 b/6:8 b/7:8", IN_BLOCK, [Set(2, 4, IN_RACK)] * 2),
        "b/5*2 b/6*2",
    ),
    Case(
        "no block has two racks that fit",
        Tree("a/1:8 a/2:4 b/5:8 b/6:4", IN_BLOCK, [Set(2, 4, IN_RACK)] * 2),
        "",
    ),
    Case(
        "each in a rack, wherever",
        Tree("a/1:8 a/2:4 b/5:8 b/6:4", None, [Set(2, 4, IN_RACK)] * 2),
        "a/1*2 b/5*2",
    ),
    Case(
        "of different sizes",
        Tree("a/1:8 a/2:4 b/5:8,8 b/6:4", None, [Set(3, 4, IN_RACK), Set(1, 4, IN_RACK)]),
        "b/5*4",
    ),
    Case(
        "one is not restricted",
        Tree("a/1:4 b/5:8", None, [Set(1, 4), Set(2, 4, IN_RACK)]),
        "a/1*1 b/5*2",
    ),
    Case(
        "one is restricted by the PodGroup alone",
        Tree("a/1:4 a/2:8 b/5:8 b/6:8", IN_BLOCK, [Set(1, 4), Set(2, 4, IN_RACK)]),
        "a/1*1 a/2*2",
    ),
    Case(
        "racks are preferred within a required block",
        Tree("a/1:4 a/2:4 a/3:8 b/5:4", IN_BLOCK, [Set(2, 4, NEAR_RACK)] * 2),
        "a/3*2 a/2*1 a/1*1",
    ),
    Case(
        "the PodGroup covers all its sub-groups",
        Tree("a/1:8,4 b/5:8", IN_RACK, [Set(1, 4), Set(2, 4)]),
        "a/1*3",
    ),
    Case(
        "the preferred rack of the PodGroup is for all of them",
        Tree("a/1:8 a/2:8,4 b/5:8", NEAR_RACK, [Set(1, 4), Set(2, 4)]),
        "a/2*3",
    ),
    Case(
        "pods of different sizes",
        Tree("a/1:8 b/5:8,8", IN_RACK, [Set(1, 8), Set(2, 4)]),
        "b/5*3",
    ),
    Case(
        "pods of different sizes that do not fit though their sum does",
        Tree("a/1:5,5,5 b/5:8,8", IN_RACK, [Set(2, 4), Set(1, 6)]),
        "b/5*3",
    ),
]


@pytest.mark.parametrize("case", TREES, ids=ids)
def test_sub_groups(case: Case[Tree, str]) -> None:
    """All sub-groups start together, in the order in which they are written."""
    layout, constraint, sets = case.given
    build = Builder(nodes=nodes_of(layout))
    podsets = []
    for number, (pods, gpu, own) in enumerate(sets):
        rows = build.waiting_pods(pods, signature(gpu=gpu))
        # By name they are in the reverse order.
        podsets.append(PodSet(f"s{9 - number}", pods, rows, domains=own))
    build.podgroup(SubGroupSet("", len(podsets), tuple(podsets), constraint))

    assert names_by_node(layout, plan(build.snapshot(), POLICIES)) == case.want


class Started(NamedTuple):
    """A PodGroup of which pods run on some nodes, and others wait."""

    layout: str
    running: Sequence[int]
    waiting: int
    constraint: DomainConstraint
    places: Sequence[int] = ()  # that are reserved for them


# Pods of 4 GPUs; what is free is beside the running ones.
STARTED: Final[list[Case[Started, str]]] = [
    Case("in the rack of the others", Started("a/1:8 a/2:4", [0], 1, IN_RACK), "a/1*1"),
    Case("not in another one", Started("a/1:0 a/2:8", [0], 1, IN_RACK), ""),
    Case("in their block", Started("a/1:0 a/2:4 b/3:4", [0], 1, IN_BLOCK), "a/2*1"),
    Case("not in another block", Started("a/1:0 b/3:4", [0], 1, IN_BLOCK), ""),
    Case("their rack is preferred", Started("a/1:8 a/2:4", [0], 1, NEAR_RACK), "a/1*1"),
    Case("another one if need be", Started("a/1:0 a/2:4", [0], 1, NEAR_RACK), "a/2*1"),
    Case(
        "first their rack, within a block",
        Started("a/1:4 a/2:4 a/3:8", [0], 3, RACK_IN_BLOCK),
        "a/1*1 a/3*2",
    ),
    Case("in one of two racks", Started("a/1:4 a/2:8 b/3:8", [0, 1], 2, IN_RACK), "a/2*2"),
    Case("most of them count first", Started("a/1:8 a/2:8 b/3:8", [0, 1, 1], 1, IN_RACK), "a/2*1"),
    Case("where a place is reserved", Started("a/1:8 a/2:8", [0], 1, IN_RACK, [0]), "a/1*1"),
    Case("though nothing else is free", Started("a/1:0 a/2:8", [0], 1, IN_RACK, [0]), "a/1*1"),
    Case("they run in no domain", Started("-:8 a/2:8", [0], 1, IN_RACK), "a/2*1"),
]


@pytest.mark.parametrize("case", STARTED, ids=ids)
def test_pods_join_those_that_run(case: Case[Started, str]) -> None:
    """Pods that replace others, and pods beyond the minimum."""
    layout, running, waiting, constraint, places = case.given
    one, size = signature(gpu=4), len(case.given.running) + case.given.waiting
    nodes = [SnapshotNode(gpu=8, used_gpu=it.used_gpu, path=it.path) for it in nodes_of(layout)]
    for node in (*running, *places):  # what they use is beside what is free
        nodes[node] = SnapshotNode(
            gpu=nodes[node].gpu + 4, used_gpu=nodes[node].used_gpu, path=nodes[node].path
        )
    build = Builder(nodes=nodes)
    row = build.signature_row(one)
    for node in running:
        build.pod_on_node(node, row)
    pods = build.waiting_pods(waiting, one)
    reserved = tuple(ReservedPlace(node, row, ReservationCause.REPAIR) for node in places)
    podset = PodSet(
        "default",
        size,
        pods,
        len(running),
        reserved_places=reserved,
        running_pods=tuple(range(len(running))),
        domains=constraint,
    )
    build.podgroup(podset, is_kept=True)
    snapshot = build.snapshot()
    if places:
        idle = snapshot.nodes.idle.copy()
        for node in places:
            idle[node] -= one.request
        snapshot = build.snapshot(nodes=_with_idle(snapshot, idle))

    assert names_by_node(layout, plan(snapshot, POLICIES)) == case.want


class Waiting(NamedTuple):
    """Why a gang of pods with 4 GPUs waits: the reason, parts of its message, and if for good."""

    reason: UnschedulableReason
    says: tuple[str, ...]
    is_resolvable: bool


UNFIT: Final = UnschedulableReason.TOPOLOGY_UNFIT
WAITING: Final[list[Case[Gang, Waiting]]] = [
    Case(
        "too little free in each rack",
        Gang("a/1:4 a/2:4 -:8", 2, 4, IN_RACK),
        Waiting(
            UNFIT,
            (
                "The PodGroup requires 2 pods in one domain of level rack of Topology dc",
                "only 1 fit in the best of 2 domains, a/1",
                "It can start when 1 more fits there (1 CPU, 1 GiB memory, 4 GPU)",
            ),
            True,
        ),
    ),
    Case(
        "the queue requires a rack",
        Gang("a/1:4 a/2:4", 2, 4, IN_RACK._replace(is_default=True)),
        Waiting(UNFIT, ("of level rack of Topology dc (the default of its queue), but",), True),
    ),
    Case(
        "no rack is large enough",
        Gang("a/1:8 a/2:8", 3, 4, IN_RACK),
        Waiting(
            UNFIT,
            (
                "at most 2 would fit in one if no other pods ran",
                "It can start when it requires a wider level (block), it requests less, or",
            ),
            False,
        ),
    ),
    Case(
        "no block is large enough",
        Gang("a/1:8 b/2:8", 3, 4, IN_BLOCK),
        Waiting(UNFIT, ("It can start when it requests less, or a domain gets more nodes",), False),
    ),
    Case(
        "all that is free is too little",
        Gang("a/1:4 b/2:0", 2, 4, IN_RACK),
        Waiting(UnschedulableReason.NO_CAPACITY, ("1 of 2 pods fits", "2 nodes have"), True),
    ),
    Case(
        "all that is free in racks is too little",
        Gang("a/1:4 b/2:0 -:8", 2, 4, IN_RACK),
        Waiting(
            UnschedulableReason.NO_CAPACITY,
            ("1 node is outside the topology domains that the PodGroup may use",),
            True,
        ),
    ),
    Case(
        "a pod is larger than any node",
        Gang("a/1:8 b/2:8", 1, 9, IN_RACK),
        Waiting(UnschedulableReason.NO_NODE_MATCHES, ("2 nodes are too small",), False),
    ),
    Case(
        "a preferred rack never keeps pods waiting",
        Gang("a/1:4 b/2:0", 2, 4, NEAR_RACK),
        Waiting(UnschedulableReason.NO_CAPACITY, ("1 of 2 pods fits",), True),
    ),
]


@pytest.mark.parametrize("case", WAITING, ids=ids)
def test_why_a_gang_waits(case: Case[Gang, Waiting]) -> None:
    """With the best domain, and what it lacks."""
    layout, pods, gpu, constraint = case.given
    build = Builder(nodes=nodes_of(layout))
    rows = build.waiting_pods(pods, signature(gpu=gpu))
    build.podgroup(PodSet("default", pods, rows, domains=constraint))
    snapshot = build.snapshot()

    (rejection,) = plan(snapshot, POLICIES).rejections

    message = rejection_message(snapshot, rejection)
    assert (rejection.reason, rejection.is_resolvable) == (
        case.want.reason,
        case.want.is_resolvable,
    )
    assert [it for it in case.want.says if it not in message] == [], message


def test_without_the_plugin_constraints_are_ignored() -> None:
    """As in KAI."""
    policies = build_policies(PolicySelection(plugins={"topology": PluginSelection(False)}))
    build = Builder(nodes=nodes_of("a/1:4 b/2:4"))
    rows = build.waiting_pods(2, signature(gpu=4))
    build.podgroup(PodSet("default", 2, rows, domains=IN_RACK))

    assert names_by_node("a/1:4 b/2:4", plan(build.snapshot(), policies)) == "a/1*1 b/2*1"


class Borrowed(NamedTuple):
    """Racks that are full of another queue's pods with one GPU each, and how many a gang wants."""

    racks: int
    pods: int  # of the gang, with one GPU each


# How many pods are evicted, all of them in one rack; each rack has two nodes.
RECLAIMS: Final[list[Case[Borrowed, int]]] = [
    Case("one pod", Borrowed(2, 1), 1),
    Case("half a rack", Borrowed(4, 8), 8),
    Case("a whole rack of many", Borrowed(20, 16), 16),
    Case("more than a rack", Borrowed(4, 17), 0),
]


@pytest.mark.parametrize("case", RECLAIMS, ids=ids)
def test_reclaim_counts_by_domain(case: Case[Borrowed, int]) -> None:
    """Victims of any age are all over the racks; no placement is tried to find enough in one."""
    racks, size = case.given
    layout = " ".join(f"a/{rack:02}:8,8" for rack in range(racks))
    queues = [SnapshotQueue("owner", quota=racks * 16), SnapshotQueue("other", quota=0)]
    build = Builder(nodes=nodes_of(layout), queues=queues)
    for i in range(racks * 16):
        build.running_podgroup([i * 7 % (2 * racks)], signature(gpu=1), queue="other")
    rows = build.waiting_pods(size, signature(gpu=1))
    build.podgroup(PodSet("default", size, rows, domains=IN_RACK), queue="owner")
    policies = replace(POLICIES, actions=(Action.ALLOCATE, Action.RECLAIM))
    assert min(Counter(i * 7 % (2 * racks) for i in range(racks * 16)).values()) == 8

    made = plan(build.snapshot(), policies)

    domains = {node // 2 for node in binds_of(made).values()}
    assert (sum(len(it.pods) for it in made.evictions), len(domains)) == (case.want, case.want > 0)
    assert made.stats.trials == 0


def test_the_domain_of_a_nomination_comes_first() -> None:
    """Rack 1 is fuller, and fits; the victims were in rack 2."""
    layout = "a/1:8 a/2:8,8"
    build = Builder(nodes=nodes_of(layout))
    rows = build.waiting_pods(2, signature(gpu=4, nominated_node=1))
    build.podgroup(PodSet("default", 2, rows, domains=IN_RACK))

    assert names_by_node(layout, plan(build.snapshot(), POLICIES)) == "a/2*2"


def test_equal_gangs_fill_one_rack_after_the_other() -> None:
    """Whatever is placed between them."""
    layout = "a/1:8 a/2:8,8 a/3:8,8,8"
    build = Builder(nodes=nodes_of(layout))
    for _ in range(5):
        rows = build.waiting_pods(2, signature(gpu=4))
        build.podgroup(PodSet("default", 2, rows, domains=IN_RACK))
        build.uniform_podgroup(1, signature(gpu=1))
    binds = binds_of(plan(build.snapshot(), POLICIES))

    racks = [nodes_of(layout)[binds[pod]].path[1] for pod in range(15) if pod % 3 < 2]
    assert racks == [*"1122333333"]


class Changed(NamedTuple):
    """So many pods with a GPU are added to nodes, or removed; and how many more must fit."""

    pods: Sequence[tuple[int, int]]
    number: int


FIRST: Final[list[Case[Changed, bool]]] = [
    Case("nothing changes", Changed([], 8), True),
    Case("more than fit", Changed([], 9), False),
    Case("it gets fuller, and they fit", Changed([(0, 1)], 7), True),
    Case("it gets fuller, and they do not fit", Changed([(0, 1)], 8), False),
    Case("it gets emptier", Changed([(0, -1)], 1), False),
    Case("another one gets fuller", Changed([(1, 1)], 1), False),
    Case("another one gets emptier", Changed([(1, -1)], 1), False),
    Case("fuller, and as it was", Changed([(0, 1), (0, -1)], 8), True),
]


@pytest.mark.parametrize("case", FIRST, ids=ids)
def test_a_domain_stays_first_while_only_it_gets_fuller(case: Case[Changed, bool]) -> None:
    """Asked after each change."""
    build = Builder(nodes=nodes_of("a/1:8 a/2:8"))
    row = build.signature_row(signature(gpu=1))
    nodes = WorkingNodes(build.snapshot(), POLICIES)
    in_use = NodesInUse(nodes.snapshot, nodes.resources, nodes.devices, nodes.statement)
    domains = TopologyDomains(in_use, nodes.snapshot.topologies[0])
    first = FirstDomain(domains, (RACK, 0), row)
    stays = True
    for node, number in case.given.pods:
        if number > 0:
            nodes.statement.allocate(node, row, on_idle=True)
        else:
            nodes.statement.deallocate(node, row)
        stays = stays and first.is_still_first(1)

    assert (stays and first.is_still_first(case.given.number)) == case.want
