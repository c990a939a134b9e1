"""Why a unit waits, in one sentence with numbers, and what would change it."""

from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.decision import (
    BarNumbers,
    MemberNumbers,
    NodeNumbers,
    Numbers,
    Obstacle,
    QuotaNumbers,
    Rejection,
)
from scheduler.core.explain import explain, for_kai
from scheduler.core.model import NONE, Axes, Kind, Snapshot, Verdict
from tests.support.case import Case, ids
from tests.support.snapshots import GIB, Builder, Node, Queue, shape

CPU, MEMORY, POD, GPU = range(4)


def snapshot() -> Snapshot:
    """Return four nodes, two queues and two shapes."""
    build = Builder(nodes=[Node()] * 4, queues=[Queue("department"), Queue("team")])
    build.shape(shape(gpu=8, cpu=0.5, memory=1.5))
    build.shape(shape(cpu=0, memory=0))
    return build.snapshot()


def rejected(verdict: Verdict, numbers: Numbers) -> Rejection:
    """Return a rejection."""
    return Rejection(0, verdict, numbers, is_curable=False, wakes_on=frozenset())


def nodes(verdict: Verdict, counts: dict[Obstacle, int], **more: Any) -> Rejection:
    """Return a rejection for lack of nodes; a pod of 8 GPUs alone unless it is said otherwise."""
    table: dict[str, Any] = {
        "verdict": verdict,
        "shape": 0,
        "placed": 0,
        "needed": 1,
        "counts": counts,
        "lacking": {},
        "largest": {},
        "room": {},
        "wanted": {},
        "is_curable": False,
    }
    return rejected(verdict, NodeNumbers(**{**table, **more}))


def quota(verdict: Verdict, kind: Kind, *amounts: int) -> Rejection:
    """Return a rejection by a bound of the team's queue: bound, allocated, asked."""
    return rejected(verdict, QuotaNumbers(1, kind, *amounts))


SHORT: Final[dict[str, Any]] = {
    "lacking": {GPU: 2, CPU: 1},
    "largest": {CPU: 250, MEMORY: GIB, POD: 3, GPU: 4000},
    "room": {CPU: 9000, MEMORY: 9 * GIB, POD: 9, GPU: 6000},
    "wanted": {CPU: 500, MEMORY: GIB, POD: 1, GPU: 8000},
}
ASKS: Final = "it asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. Of 4 nodes"
MATCH: Final = "It starts when a node appears, or changes, that matches"
NO_MATCH, SCATTERED, NO_ROOM = Verdict.NO_NODE_MATCHES, Verdict.FRAGMENTED, Verdict.NO_CAPACITY

# a rejection -> the sentence
SENTENCES: list[Case[Rejection, str]] = [
    Case(
        "what was known before is told as it is",
        rejected(Verdict.QUEUE_MISSING, BarNumbers("there is no queue red")),
        "there is no queue red",
    ),
    Case(
        "a limit in GPUs",
        quota(Verdict.EXCEEDS_LIMIT, Kind.GPU, 8000, 6000, 3000),
        "queue team may have at most 8 GPU and has 6 GPU; 3 GPU more are needed. It starts when "
        "1 GPU of the queue are given back, or its limit rises",
    ),
    Case(
        "a limit in memory",
        quota(Verdict.EXCEEDS_LIMIT, Kind.MEMORY, 2 * GIB, GIB, 5 * GIB // 2),
        "queue team may have at most 2 GiB memory and has 1 GiB memory; 2.5 GiB memory more are "
        "needed. It starts when 1.5 GiB memory of the queue are given back, or its limit rises",
    ),
    Case(
        "a quota in CPU",
        quota(Verdict.NON_PREEMPTIBLE_OVER_QUOTA, Kind.CPU, 1000, 100, 901),
        "what cannot be preempted may have the quota of queue team, 1 CPU, and has 0.1 CPU; 0.901 "
        "CPU more are needed. It starts when 0.001 CPU of that are given back, the quota is "
        "raised, or it may be preempted",
    ),
    Case(
        "members that are missing",
        rejected(Verdict.PODS_MISSING, MemberNumbers((("driver", 0, 1), ("worker", 3, 4)))),
        "pods are missing: 0 of 1 exist in driver, 3 of 4 exist in worker",
    ),
    Case(
        "nobody in particular is missing",
        rejected(Verdict.PODS_MISSING, MemberNumbers(())),
        "pods are missing: no sub-group that is missing can be whole",
    ),
    Case("no nodes at all", nodes(NO_MATCH, {}), f"{ASKS} there is none. {MATCH}"),
    Case(
        "of several obstacles the last comes first: it is the nearest to a fit",
        nodes(NO_MATCH, {Obstacle.CORDONED: 1, Obstacle.TOO_SMALL: 3}),
        f"{ASKS} 3 are too small even when empty, 1 is cordoned. {MATCH}",
    ),
    Case(
        "who asks for nothing",
        nodes(NO_MATCH, {}, shape=1),
        f"it asks for nothing. Of 4 nodes there is none. {MATCH}",
    ),
    Case(
        "how far a gang got",
        nodes(NO_MATCH, {Obstacle.PORT: 4}, placed=2, needed=5),
        "2 of 5 pods have room, the next asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. Of 4 nodes 4 "
        f"have its host port in use. {MATCH}",
    ),
    Case(
        "no capacity: what most nodes lack first",
        nodes(NO_ROOM, {Obstacle.ROOM: 2, Obstacle.TAINT: 1}, **SHORT),
        f"{ASKS} 2 lack room (4 GPU at most on one, 0.25 CPU at most on one), 1 has a taint that "
        "it does not tolerate. In all 8 GPU needed, 6 GPU free: it starts when the rest is given "
        "back",
    ),
    Case(
        "in pieces",
        nodes(SCATTERED, {Obstacle.ROOM: 1}, **{**SHORT, "room": {**SHORT["room"], GPU: 8000}}),
        f"{ASKS} 1 lacks room (4 GPU at most on one, 0.25 CPU at most on one). There is enough in "
        "all, but in pieces: it starts when one node has 0.5 CPU, 8 GPU free",
    ),
    Case(
        "places for pods have no unit of their own",
        nodes(
            NO_ROOM,
            {Obstacle.ROOM: 4},
            lacking={POD: 4},
            largest={POD: 0},
            room={POD: 0},
            wanted={POD: 1},
        ),
        f"{ASKS} 4 lack room (0 pods at most on one). In all 1 pods needed, 0 pods free: it starts "
        "when the rest is given back",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Rejection, str]) -> None:
    """Whole sentences: what is asked for, what there is, what would change it."""
    assert explain(snapshot(), case.given) == case.want


def test_one_node_is_one() -> None:
    """And a device that only some nodes have is named in full."""
    one = Builder(nodes=[Node()])
    one.shape(shape(gpu=1))
    axes = Axes(("cpu", "memory", "pods", "nvidia.com/mig-1g.5gb"), (0, 1, NONE, 2), (), 0, 2, ())
    told = explain(replace(one.snapshot(), axes=axes), nodes(NO_MATCH, {Obstacle.TOO_SMALL: 1}))
    assert "8 GPU" not in told
    assert "1000 nvidia.com/mig-1g.5gb. Of 1 node 1 is too small" in told


@pytest.mark.parametrize("obstacle", Obstacle)
def test_every_obstacle_has_words(obstacle: Obstacle) -> None:
    """For one node, for several, and for KAI's tools."""
    more = {"lacking": {GPU: 3}, "largest": {GPU: 0}, "room": {GPU: 0}, "wanted": {GPU: 1}}
    one, several = (
        nodes(NO_ROOM, {obstacle: n}, **({**more, "lacking": {GPU: n}})) for n in (1, 3)
    )
    phrases = [
        explain(snapshot(), it).split("Of 4 nodes ")[1].split(". In")[0] for it in (one, several)
    ]
    assert phrases[0].startswith("1 ")
    assert phrases[1].startswith("3 ")
    assert all(len(phrase) > 5 for phrase in phrases)
    assert "3 node(s) " in for_kai(snapshot(), several)[1]


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_a_title(verdict: Verdict) -> None:
    """A word as Kubernetes writes reasons, and a sentence even where nothing else is known."""
    assert verdict.title.isalpha()
    assert verdict.title[0].isupper()
    assert "_" not in verdict.title
    assert explain(snapshot(), rejected(verdict, BarNumbers("so it is"))) == "so it is"


def test_titles() -> None:
    """As the README lists them."""
    assert Verdict.NON_PREEMPTIBLE_OVER_QUOTA.title == "NonPreemptibleOverQuota"
    assert len({verdict.title for verdict in Verdict}) == len(Verdict)


HISTOGRAM: Final = (
    "no nodes with enough resources were found: "
    "1 node(s) didn't have enough resources: cpu, "
    "1 node(s) have taints it does not tolerate, "
    "2 node(s) didn't have enough resources: nvidia.com/gpu."
)

# a rejection -> KAI's reason, and the beginning of its message
FOR_KAI: list[Case[Rejection, tuple[str, str]]] = [
    Case(
        "a limit",
        quota(Verdict.EXCEEDS_LIMIT, Kind.GPU, 8000, 6000, 3000),
        ("OverLimit", "queue team may have at most 8 GPU"),
    ),
    Case(
        "a quota",
        quota(Verdict.NON_PREEMPTIBLE_OVER_QUOTA, Kind.GPU, 8000, 6000, 3000),
        ("NonPreemptibleOverQuota", "what cannot be preempted"),
    ),
    Case(
        "no queue",
        rejected(Verdict.QUEUE_MISSING, BarNumbers("there is no queue red")),
        ("QueueDoesNotExist", "there is no queue red"),
    ),
    Case(
        "no nodes",
        nodes(NO_ROOM, {Obstacle.TAINT: 1, Obstacle.ROOM: 2}, **SHORT),
        ("PodSchedulingErrors", HISTOGRAM),
    ),
    Case(
        "what KAI does not know has our name",
        rejected(Verdict.WAITING_FOR_STAGE, BarNumbers("the data set comes first")),
        ("WaitingForStage", "the data set comes first"),
    ),
]


@pytest.mark.parametrize("case", FOR_KAI, ids=ids)
def test_for_kai(case: Case[Rejection, tuple[str, str]]) -> None:
    """Its reasons are kept, for tools that read those."""
    reason, message = for_kai(snapshot(), case.given)
    assert reason == case.want[0]
    assert message.startswith(case.want[1])
