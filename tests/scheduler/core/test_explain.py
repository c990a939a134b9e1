"""Why a unit waits, in one sentence with numbers, and what would change it."""

from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.decision import (
    BarNumbers,
    MemberNumbers,
    Missing,
    NodeNumbers,
    Numbers,
    Obstacle,
    QuotaNumbers,
    Rejection,
)
from scheduler.core.explain import COUNTED_MOST, MOST, explain, for_kai
from scheduler.core.model import NONE, Axes, Kind, Snapshot, Verdict
from scheduler.state import amounts
from tests.support.case import Case, ids
from tests.support.snapshots import GIB, Builder, Node, Queue, shape

CPU, MEMORY, POD, GPU = range(4)


def snapshot() -> Snapshot:
    """Return four nodes, two queues and some shapes."""
    node = Node(labels=(0,) * 2, taints=(True,) * 4)
    build = Builder(nodes=[node] * 4, queues=[Queue("department"), Queue("team")])
    build.shape(shape(gpu=8, cpu=0.5, memory=1.5))
    build.shape(shape(cpu=0, memory=0))
    build.shape(shape(cpu=MOST / 1000, memory=MOST / GIB))
    build.shape(shape(own_claims=(0,)))
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
        "own": {},
        "taints": {},
        "keys": {},
        "small": {},
        "biggest": {},
        "lacking": {},
        "largest": {},
        "room": {},
        "left": 1,
        "seats": 1,
        "is_curable": False,
    }
    return rejected(verdict, NodeNumbers(**{**table, **more}))


def quota(verdict: Verdict) -> Rejection:
    """Return a rejection by a bound of the team's queue."""
    return rejected(verdict, QuotaNumbers(1, Kind.GPU, 8000, 6000, 3000))


def members(*missing: Missing) -> Rejection:
    """Return a rejection for lack of members."""
    return rejected(Verdict.PODS_MISSING, MemberNumbers(missing))


SHORT: Final[dict[str, Any]] = {
    "lacking": {GPU: 2, CPU: 1},
    "largest": {CPU: 250, MEMORY: GIB, POD: 3, GPU: 4000},
    "room": {CPU: 300, MEMORY: 9 * GIB, POD: 9, GPU: 6000},
}
TWO_LEFT: Final[dict[str, Any]] = {**SHORT, "placed": 1, "left": 2}
ASKS: Final = "it asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. Of 4 nodes"
NEXT: Final = (
    "pods have room, the next asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. After 1 of its pods is "
    "placed, of 4 nodes"
)
ADDED: Final = "a node that matches is added"
AND_THEN: Final = ", as long as there is then room for 2 such pods (1 CPU, 16 GPU)"
NO_MATCH, SCATTERED, NO_ROOM = Verdict.NO_NODE_MATCHES, Verdict.FRAGMENTED, Verdict.NO_CAPACITY

# a rejection -> the sentence
SENTENCES: list[Case[Rejection, str]] = [
    Case(
        "what was known before is told as it is",
        rejected(Verdict.QUEUE_MISSING, BarNumbers("there is no queue red")),
        "there is no queue red",
    ),
    Case(
        "members that are missing",
        members(Missing("driver", 0, 1), Missing("worker", 3, 4)),
        "pods are missing: 0 of 1 exist in driver, 3 of 4 exist in worker. It waits until the "
        "others exist",
    ),
    Case(
        "members that are gated",
        members(Missing("default", 2, 2, gated=1)),
        "pods are missing: 2 of 2 exist in default, 1 of them is gated (schedulingGates). It waits "
        "until the gates are gone",
    ),
    Case(
        "some are missing and some are gated",
        members(Missing("default", 3, 4, gated=2)),
        "pods are missing: 3 of 4 exist in default, 2 of them are gated (schedulingGates). It "
        "waits until the others exist and the gates are gone",
    ),
    Case(
        "nobody in particular is missing",
        members(),
        "pods are missing: no sub-group that is missing can be whole",
    ),
    Case(
        "no nodes at all",
        nodes(NO_MATCH, {}),
        f"{ASKS} there is none. It can start when {ADDED}",
    ),
    Case(
        "of several obstacles the last comes first: it is the nearest to a fit",
        nodes(NO_MATCH, {Obstacle.TAINT: 1, Obstacle.CORDONED: 1, Obstacle.TOO_SMALL: 2}),
        f"{ASKS} 2 are too small even when empty, 1 has a taint that it does not tolerate, 1 is "
        f"cordoned. It can start when it asks for less, it tolerates the taints of a node, or "
        f"{ADDED}",
    ),
    Case(
        "taints are named, the most frequent first",
        nodes(NO_MATCH, {Obstacle.TAINT: 4}, taints={0: 1, 1: 4}),
        f"{ASKS} 4 have taints it does not tolerate (taint-1, taint-0). It can start when it "
        f"tolerates the taints of a node, or {ADDED}",
    ),
    Case(
        "at most three of them",
        nodes(NO_MATCH, {Obstacle.TAINT: 4}, taints={0: 1, 1: 1, 2: 1, 3: 2}),
        f"{ASKS} 4 have taints it does not tolerate (taint-3, taint-0, taint-1, …). It can start "
        f"when it tolerates the taints of a node, or {ADDED}",
    ),
    Case(
        "labels are named as well",
        nodes(NO_MATCH, {Obstacle.SELECTOR: 4}, keys={"key-0": 1, "key-1": 4}),
        f"{ASKS} 4 do not match what it selects (by key-1, key-0). It can start when it selects "
        f"other nodes, or {ADDED}",
    ),
    Case(
        "what all are too small for",
        nodes(
            NO_MATCH,
            {Obstacle.TOO_SMALL: 4},
            small={GPU: 4, MEMORY: 4},
            biggest={GPU: 4000, MEMORY: GIB},
        ),
        f"{ASKS} 4 are too small even when empty (the largest has 1 GiB memory, 4 GPU). It can "
        f"start when it asks for less, or {ADDED}",
    ),
    Case(
        "what only some are too small for",
        nodes(
            NO_MATCH,
            {Obstacle.TOO_SMALL: 3},
            small={GPU: 2, MEMORY: 3},
            biggest={GPU: 0, MEMORY: GIB},
        ),
        f"{ASKS} 3 are too small even when empty (3 with at most 1 GiB memory, 2 with at most 0 "
        f"GPU). It can start when it asks for less, or {ADDED}",
    ),
    Case(
        "no pod can ask for less than one place",
        nodes(NO_MATCH, {Obstacle.TOO_SMALL: 1}, small={POD: 1}, biggest={POD: 0}),
        f"{ASKS} 1 is too small even when empty (it has 0 places for pods). It can start when "
        f"{ADDED}",
    ),
    Case(
        "who asks for nothing",
        nodes(NO_MATCH, {}, shape=1),
        f"it asks for nothing. Of 4 nodes there is none. It can start when {ADDED}",
    ),
    Case(
        "who asks for more than there are numbers",
        nodes(NO_MATCH, {Obstacle.TOO_SMALL: 4}, shape=2),
        "it asks for more CPU than any node can have, more memory than any node can have. Of 4 "
        f"nodes 4 are too small even when empty. It can start when it asks for less, or {ADDED}",
    ),
    Case(
        "how far a gang got",
        nodes(NO_MATCH, {Obstacle.PORT: 4}, placed=2, needed=5),
        "2 of 5 pods have room, the next asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. After 2 of its "
        "pods are placed, of 4 nodes 4 "
        f"have its host port in use. It can start when the host port is free, or {ADDED}",
    ),
    Case(
        "what its own pods are in the way of does not go",
        nodes(NO_MATCH, {Obstacle.PORT: 4}, own={Obstacle.PORT: 4}),
        f"{ASKS} 4 have its host port in use (4 because of its own pods). It can start when "
        f"{ADDED}",
    ),
    Case(
        "what only some of its own pods are in the way of does",
        nodes(NO_MATCH, {Obstacle.PORT: 4}, own={Obstacle.PORT: 3}),
        f"{ASKS} 4 have its host port in use (3 because of its own pods). It can start when the "
        f"host port is free, or {ADDED}",
    ),
    Case(
        "a claim in use is not free on a node that is added",
        nodes(NO_MATCH, {Obstacle.CLAIM: 4}),
        f"{ASKS} 4 cannot give it a claim that is in use. It can start when the claim is free",
    ),
    Case(
        "nothing would change that its pods share a claim of one pod",
        nodes(NO_MATCH, {Obstacle.CLAIM: 4}, own={Obstacle.CLAIM: 4}, shape=3),
        "it asks for 1 CPU, 1 GiB memory. Of 4 nodes 4 cannot give it a claim that is in use (4 "
        "because of its own pods). It can never start: its own pods are in each other's way",
    ),
    Case(
        "they may share a claim of one node on a larger one",
        nodes(NO_MATCH, {Obstacle.CLAIM: 4}, own={Obstacle.CLAIM: 4}),
        f"{ASKS} 4 cannot give it a claim that is in use (4 because of its own pods). It can start "
        f"when {ADDED}",
    ),
    Case(
        "no capacity: what most nodes lack first",
        nodes(NO_ROOM, {Obstacle.ROOM: 2, Obstacle.TAINT: 1}, **SHORT),
        f"{ASKS} 2 lack room (at most 4 GPU, 0.25 CPU free on one), 1 has a taint that it does not "
        "tolerate. Together they have 0.3 CPU, 6 GPU free: it can start when one of them has 0.5 "
        "CPU, 8 GPU free",
    ),
    Case(
        "several pods are left",
        nodes(NO_ROOM, {Obstacle.ROOM: 2}, **TWO_LEFT, needed=3, seats=2),
        f"1 of 3 {NEXT} 2 lack room (at most 4 GPU, 0.25 CPU free on one). "
        "Together they then have 0.3 CPU, 6 GPU free: it can start when they then have room for 2 "
        "such pods (1 CPU, 16 GPU)",
    ),
    Case(
        "one node has all that is free",
        nodes(NO_ROOM, {Obstacle.ROOM: 1}, **{**SHORT, "room": SHORT["largest"]}),
        f"{ASKS} 1 lacks room (4 GPU, 0.25 CPU free). It can start when that node has 0.5 CPU, 8 "
        "GPU free",
    ),
    Case(
        "too little even without the others",
        nodes(NO_ROOM, {Obstacle.ROOM: 2, Obstacle.CORDONED: 1}, **TWO_LEFT, needed=3),
        f"1 of 3 {NEXT} 2 lack room (at most 4 GPU, 0.25 CPU free on one), 1 is "
        "cordoned. Even with nobody else there, there is room for only 2 of 3 pods. It can start "
        f"when a node is uncordoned, or {ADDED}{AND_THEN}",
    ),
    Case(
        "too little for those of one kind",
        nodes(NO_ROOM, {Obstacle.ROOM: 4}, **TWO_LEFT, needed=9),
        f"1 of 9 {NEXT} 4 lack room (at most 4 GPU, 0.25 CPU free on one). Even with "
        f"nobody else there, there is room for only 1 of 2 such pods. It can start when {ADDED}"
        f"{AND_THEN}",
    ),
    Case(
        "none for those of one kind",
        nodes(NO_ROOM, {Obstacle.ROOM: 4}, **TWO_LEFT, needed=9, seats=0),
        f"1 of 9 {NEXT} 4 lack room (at most 4 GPU, 0.25 CPU free on one). Even with "
        "nobody else there, there is no room for such a pod beside its own. It can start when "
        f"{ADDED}{AND_THEN}",
    ),
    Case(
        "many of them on nodes that are closed to it",
        nodes(NO_MATCH, {Obstacle.CORDONED: 4}, needed=3, placed=1, left=2),
        f"1 of 3 {NEXT} 4 are cordoned. It can start when a node is uncordoned, or "
        f"{ADDED}, as long as there is then room for 2 such pods",
    ),
    Case(
        "in pieces",
        nodes(SCATTERED, {Obstacle.ROOM: 2}, **{**SHORT, "room": {**SHORT["room"], GPU: 8000}}),
        f"{ASKS} 2 lack room (at most 4 GPU, 0.25 CPU free on one). There is enough in all, but in "
        "pieces: it can start when one of them has 0.5 CPU, 8 GPU free",
    ),
    Case(
        "places for pods have no unit of their own",
        nodes(
            NO_ROOM,
            {Obstacle.ROOM: 4},
            lacking={POD: 4},
            largest={POD: 0},
            room={POD: 0},
        ),
        f"{ASKS} 4 lack room (at most 0 places for pods free on one). It can start when one of "
        "them has 1 place for pods free",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Rejection, str]) -> None:
    """Whole sentences: what is asked for, what there is, what would change it."""
    assert explain(snapshot(), case.given) == case.want


def test_numbers_are_cut_off_where_the_state_does() -> None:
    """The core cannot ask it."""
    assert (MOST, COUNTED_MOST) == (amounts.MOST, amounts.COUNTED_MOST)


def test_one_node_is_one() -> None:
    """And a device that only some nodes have is named in full."""
    one = Builder(nodes=[Node()])
    one.shape(shape(gpu=1))
    axes = Axes(("cpu", "memory", "pods", "nvidia.com/mig-1g.5gb"), (0, 1, NONE, 2), (), 0, 2, ())
    told = explain(replace(one.snapshot(), axes=axes), nodes(NO_MATCH, {Obstacle.TOO_SMALL: 1}))
    assert "8 GPU" not in told
    assert "1000 nvidia.com/mig-1g.5gb. Of 1 node 1 is too small" in told


def test_gpus_of_two_makers_are_told_apart() -> None:
    """A pod for one does not run on the other."""
    two = Builder(nodes=[Node()])
    two.shape(shape(gpu=1))
    axes = Axes(
        ("cpu", "memory", "amd.com/gpu", "nvidia.com/gpu"), (0, 1, 2, 2), (), 0, NONE, (2, 3)
    )
    told = explain(replace(two.snapshot(), axes=axes), nodes(NO_MATCH, {}))
    assert "0.001 amd.com/gpu, 1 nvidia.com/gpu. Of" in told


@pytest.mark.parametrize("obstacle", Obstacle)
def test_every_obstacle_has_words(obstacle: Obstacle) -> None:
    """For one node, for several, and for KAI's tools."""
    more = {"lacking": {GPU: 3}, "largest": {GPU: 0}, "room": {GPU: 0}}
    one, several = (
        nodes(NO_ROOM, {obstacle: n}, **({**more, "lacking": {GPU: n}})) for n in (1, 3)
    )
    phrases = [
        explain(snapshot(), it).split("Of 4 nodes ")[1].split(". It")[0] for it in (one, several)
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
        quota(Verdict.EXCEEDS_LIMIT),
        ("OverLimit", "queue team may have at most 8 GPU"),
    ),
    Case(
        "a quota",
        quota(Verdict.NON_PREEMPTIBLE_OVER_QUOTA),
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
