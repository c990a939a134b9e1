"""Why a PodGroup waits, in one sentence with numbers, and what would change it."""

from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.messages.rejections import (
    MAX_QUEUE_REQUEST,
    MAX_REQUEST,
    kai_condition,
    rejection_message,
)
from scheduler.core.model.cluster_events import ClusterEvent
from scheduler.core.model.rejections import (
    FitErrorReason,
    FitErrors,
    IncompletePodSet,
    MissingPods,
    PreFilterDetails,
    QueueBoundExceeded,
    Rejection,
    RejectionDetails,
    UnschedulableReason,
)
from scheduler.core.model.resources import NONE, ResourceColumns, ResourceKind
from scheduler.core.model.snapshot import Snapshot
from scheduler.state.nodes import node_table as amounts
from tests.support.case import Case, ids
from tests.support.snapshot.builder import GIB, Builder, SnapshotNode, SnapshotQueue, signature

CPU, MEMORY, POD, GPU = range(4)


def snapshot() -> Snapshot:
    """Return four nodes, two queues and some signatures."""
    node = SnapshotNode(labels=(0,) * 2, taints=(True,) * 4)
    build = Builder(nodes=[node] * 4, queues=[SnapshotQueue("department"), SnapshotQueue("team")])
    build.signature_row(signature(gpu=8, cpu=0.5, memory=1.5))
    build.signature_row(signature(cpu=0, memory=0))
    build.signature_row(signature(cpu=MAX_REQUEST / 1000, memory=MAX_REQUEST / GIB))
    build.signature_row(signature(rwop_claims=(0,)))
    return build.snapshot()


def rejected(reason: UnschedulableReason, details: RejectionDetails) -> Rejection:
    """Return a rejection."""
    return Rejection(0, reason, details, is_resolvable=False, retry_on=ClusterEvent.ANY)


def nodes(reason: UnschedulableReason, counts: dict[FitErrorReason, int], **more: Any) -> Rejection:
    """Return a rejection for lack of nodes; a pod of 8 GPUs alone unless it is said otherwise."""
    table: dict[str, Any] = {
        "reason": reason,
        "signature": 0,
        "placed": 0,
        "needed": 1,
        "counts": counts,
        "own_counts": {},
        "taints": {},
        "keys": {},
        "too_small": {},
        "largest_allocatable": {},
        "insufficient": {},
        "largest_free": {},
        "total_free": {},
        "unplaced": 1,
        "fitting": 1,
        "is_resolvable": False,
    }
    return rejected(reason, FitErrors(**{**table, **more}))


def quota(reason: UnschedulableReason) -> Rejection:
    """Return a rejection by a bound of the team's queue."""
    return rejected(reason, QueueBoundExceeded(1, ResourceKind.GPU, 8000, 6000, 3000))


def members(*missing: IncompletePodSet) -> Rejection:
    """Return a rejection for lack of members."""
    return rejected(UnschedulableReason.PODS_MISSING, MissingPods(missing))


SHORT: Final[dict[str, Any]] = {
    "insufficient": {GPU: 2, CPU: 1},
    "largest_free": {CPU: 250, MEMORY: GIB, POD: 3, GPU: 4000},
    "total_free": {CPU: 300, MEMORY: 9 * GIB, POD: 9, GPU: 6000},
}
TWO_LEFT: Final[dict[str, Any]] = {**SHORT, "placed": 1, "unplaced": 2}
ASKS: Final = "it asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. Of 4 nodes"
NEXT: Final = (
    "pods have room, the next asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. After 1 of its pods is "
    "placed, of 4 nodes"
)
ADDED: Final = "a node that matches is added"
AND_THEN: Final = ", as long as there is then room for 2 such pods (1 CPU, 16 GPU)"
NO_MATCH, SCATTERED, NO_ROOM = (
    UnschedulableReason.NO_NODE_MATCHES,
    UnschedulableReason.FRAGMENTED,
    UnschedulableReason.NO_CAPACITY,
)

# a rejection -> the sentence
SENTENCES: list[Case[Rejection, str]] = [
    Case(
        "what was known before is told as it is",
        rejected(UnschedulableReason.QUEUE_MISSING, PreFilterDetails("there is no queue red")),
        "there is no queue red",
    ),
    Case(
        "members that are missing",
        members(IncompletePodSet("driver", 0, 1), IncompletePodSet("worker", 3, 4)),
        "pods are missing: 0 of 1 exist in driver, 3 of 4 exist in worker. It waits until the "
        "others exist",
    ),
    Case(
        "members that are gated",
        members(IncompletePodSet("default", 2, 2, gated=1)),
        "pods are missing: 2 of 2 exist in default, 1 of them is gated (schedulingGates). It waits "
        "until the gates are gone",
    ),
    Case(
        "some are missing and some are gated",
        members(IncompletePodSet("default", 3, 4, gated=2)),
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
        nodes(
            NO_MATCH,
            {FitErrorReason.TAINT: 1, FitErrorReason.CORDONED: 1, FitErrorReason.TOO_SMALL: 2},
        ),
        f"{ASKS} 2 are too small even when empty, 1 has a taint that it does not tolerate, 1 is "
        f"cordoned. It can start when it asks for less, it tolerates the taints of a node, or "
        f"{ADDED}",
    ),
    Case(
        "taints are named, the most frequent first",
        nodes(NO_MATCH, {FitErrorReason.TAINT: 4}, taints={0: 1, 1: 4}),
        f"{ASKS} 4 have taints it does not tolerate (taint-1, taint-0). It can start when it "
        f"tolerates the taints of a node, or {ADDED}",
    ),
    Case(
        "at most three of them",
        nodes(NO_MATCH, {FitErrorReason.TAINT: 4}, taints={0: 1, 1: 1, 2: 1, 3: 2}),
        f"{ASKS} 4 have taints it does not tolerate (taint-3, taint-0, taint-1, …). It can start "
        f"when it tolerates the taints of a node, or {ADDED}",
    ),
    Case(
        "labels are named as well",
        nodes(NO_MATCH, {FitErrorReason.SELECTOR: 4}, keys={"key-0": 1, "key-1": 4}),
        f"{ASKS} 4 do not match what it selects (by key-1, key-0). It can start when it selects "
        f"other nodes, or {ADDED}",
    ),
    Case(
        "what all are too small for",
        nodes(
            NO_MATCH,
            {FitErrorReason.TOO_SMALL: 4},
            too_small={GPU: 4, MEMORY: 4},
            largest_allocatable={GPU: 4000, MEMORY: GIB},
        ),
        f"{ASKS} 4 are too small even when empty (the largest has 1 GiB memory, 4 GPU). It can "
        f"start when it asks for less, or {ADDED}",
    ),
    Case(
        "what only some are too small for",
        nodes(
            NO_MATCH,
            {FitErrorReason.TOO_SMALL: 3},
            too_small={GPU: 2, MEMORY: 3},
            largest_allocatable={GPU: 0, MEMORY: GIB},
        ),
        f"{ASKS} 3 are too small even when empty (3 with at most 1 GiB memory, 2 with at most 0 "
        f"GPU). It can start when it asks for less, or {ADDED}",
    ),
    Case(
        "no pod can ask for less than one place",
        nodes(
            NO_MATCH,
            {FitErrorReason.TOO_SMALL: 1},
            too_small={POD: 1},
            largest_allocatable={POD: 0},
        ),
        f"{ASKS} 1 is too small even when empty (it has 0 places for pods). It can start when "
        f"{ADDED}",
    ),
    Case(
        "who asks for nothing",
        nodes(NO_MATCH, {}, signature=1),
        f"it asks for nothing. Of 4 nodes there is none. It can start when {ADDED}",
    ),
    Case(
        "who asks for more than there are numbers",
        nodes(NO_MATCH, {FitErrorReason.TOO_SMALL: 4}, signature=2),
        "it asks for more CPU than any node can have, more memory than any node can have. Of 4 "
        f"nodes 4 are too small even when empty. It can start when it asks for less, or {ADDED}",
    ),
    Case(
        "how far a gang got",
        nodes(NO_MATCH, {FitErrorReason.PORT: 4}, placed=2, needed=5),
        "2 of 5 pods have room, the next asks for 0.5 CPU, 1.5 GiB memory, 8 GPU. After 2 of its "
        "pods are placed, of 4 nodes 4 "
        f"have its host port in use. It can start when the host port is free, or {ADDED}",
    ),
    Case(
        "what its own pods are in the way of does not go",
        nodes(NO_MATCH, {FitErrorReason.PORT: 4}, own_counts={FitErrorReason.PORT: 4}),
        f"{ASKS} 4 have its host port in use (4 because of its own pods). It can start when "
        f"{ADDED}",
    ),
    Case(
        "what only some of its own pods are in the way of does",
        nodes(NO_MATCH, {FitErrorReason.PORT: 4}, own_counts={FitErrorReason.PORT: 3}),
        f"{ASKS} 4 have its host port in use (3 because of its own pods). It can start when the "
        f"host port is free, or {ADDED}",
    ),
    Case(
        "a claim in use is not free on a node that is added",
        nodes(NO_MATCH, {FitErrorReason.CLAIM: 4}),
        f"{ASKS} 4 cannot give it a claim that is in use. It can start when the claim is free",
    ),
    Case(
        "nothing would change that its pods share a claim of one pod",
        nodes(
            NO_MATCH, {FitErrorReason.CLAIM: 4}, own_counts={FitErrorReason.CLAIM: 4}, signature=3
        ),
        "it asks for 1 CPU, 1 GiB memory. Of 4 nodes 4 cannot give it a claim that is in use (4 "
        "because of its own pods). It can never start: its own pods are in each other's way",
    ),
    Case(
        "they may share a claim of one node on a larger one",
        nodes(NO_MATCH, {FitErrorReason.CLAIM: 4}, own_counts={FitErrorReason.CLAIM: 4}),
        f"{ASKS} 4 cannot give it a claim that is in use (4 because of its own pods). It can start "
        f"when {ADDED}",
    ),
    Case(
        "no capacity: what most nodes lack first",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 2, FitErrorReason.TAINT: 1}, **SHORT),
        f"{ASKS} 2 lack room (at most 4 GPU, 0.25 CPU free on one), 1 has a taint that it does not "
        "tolerate. Together they have 0.3 CPU, 6 GPU free: it can start when one of them has 0.5 "
        "CPU, 8 GPU free",
    ),
    Case(
        "several pods are left",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 2}, **TWO_LEFT, needed=3, fitting=2),
        f"1 of 3 {NEXT} 2 lack room (at most 4 GPU, 0.25 CPU free on one). "
        "Together they then have 0.3 CPU, 6 GPU free: it can start when they then have room for 2 "
        "such pods (1 CPU, 16 GPU)",
    ),
    Case(
        "one node has all that is free",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 1}, **{**SHORT, "total_free": SHORT["largest_free"]}),
        f"{ASKS} 1 lacks room (4 GPU, 0.25 CPU free). It can start when that node has 0.5 CPU, 8 "
        "GPU free",
    ),
    Case(
        "too little even without the others",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 2, FitErrorReason.CORDONED: 1}, **TWO_LEFT, needed=3),
        f"1 of 3 {NEXT} 2 lack room (at most 4 GPU, 0.25 CPU free on one), 1 is "
        "cordoned. Even with nobody else there, there is room for only 2 of 3 pods. It can start "
        f"when a node is uncordoned, or {ADDED}{AND_THEN}",
    ),
    Case(
        "too little for those of one kind",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 4}, **TWO_LEFT, needed=9),
        f"1 of 9 {NEXT} 4 lack room (at most 4 GPU, 0.25 CPU free on one). Even with "
        f"nobody else there, there is room for only 1 of 2 such pods. It can start when {ADDED}"
        f"{AND_THEN}",
    ),
    Case(
        "none for those of one kind",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 4}, **TWO_LEFT, needed=9, fitting=0),
        f"1 of 9 {NEXT} 4 lack room (at most 4 GPU, 0.25 CPU free on one). Even with "
        "nobody else there, there is no room for such a pod beside its own. It can start when "
        f"{ADDED}{AND_THEN}",
    ),
    Case(
        "many of them on nodes that are closed to it",
        nodes(NO_MATCH, {FitErrorReason.CORDONED: 4}, needed=3, placed=1, unplaced=2),
        f"1 of 3 {NEXT} 4 are cordoned. It can start when a node is uncordoned, or "
        f"{ADDED}, as long as there is then room for 2 such pods",
    ),
    Case(
        "in pieces",
        nodes(
            SCATTERED,
            {FitErrorReason.ROOM: 2},
            **{**SHORT, "total_free": {**SHORT["total_free"], GPU: 8000}},
        ),
        f"{ASKS} 2 lack room (at most 4 GPU, 0.25 CPU free on one). There is enough in all, but in "
        "pieces: it can start when one of them has 0.5 CPU, 8 GPU free",
    ),
    Case(
        "places for pods have no unit of their own",
        nodes(
            NO_ROOM,
            {FitErrorReason.ROOM: 4},
            insufficient={POD: 4},
            largest_free={POD: 0},
            total_free={POD: 0},
        ),
        f"{ASKS} 4 lack room (at most 0 places for pods free on one). It can start when one of "
        "them has 1 place for pods free",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Rejection, str]) -> None:
    """Whole sentences: what is asked for, what there is, what would change it."""
    assert rejection_message(snapshot(), case.given) == case.want


def test_numbers_are_cut_off_where_the_state_does() -> None:
    """The core cannot ask it."""
    assert (MAX_REQUEST, MAX_QUEUE_REQUEST) == (amounts.MAX_AMOUNT, amounts.MAX_QUEUE_REQUEST)


def test_one_node_is_one() -> None:
    """And a device that only some nodes have is named in full."""
    one = Builder(nodes=[SnapshotNode()])
    one.signature_row(signature(gpu=1))
    resources = ResourceColumns(
        ("cpu", "memory", "pods", "nvidia.com/mig-1g.5gb"), (0, 1, NONE, 2), (), 0, 2, ()
    )
    report = rejection_message(
        replace(one.snapshot(), resources=resources), nodes(NO_MATCH, {FitErrorReason.TOO_SMALL: 1})
    )
    assert "8 GPU" not in report
    assert "1000 nvidia.com/mig-1g.5gb. Of 1 node 1 is too small" in report


def test_gpus_of_two_vendors_are_named_apart() -> None:
    """A pod for one does not run on the other."""
    two = Builder(nodes=[SnapshotNode()])
    two.signature_row(signature(gpu=1))
    resources = ResourceColumns(
        ("cpu", "memory", "amd.com/gpu", "nvidia.com/gpu"), (0, 1, 2, 2), (), 0, NONE, (2, 3)
    )
    report = rejection_message(replace(two.snapshot(), resources=resources), nodes(NO_MATCH, {}))
    assert "0.001 amd.com/gpu, 1 nvidia.com/gpu. Of" in report


@pytest.mark.parametrize("fit_error_reason", FitErrorReason)
def test_every_obstacle_has_words(fit_error_reason: FitErrorReason) -> None:
    """For one node, for several, and for KAI's tools."""
    more = {"insufficient": {GPU: 3}, "largest_free": {GPU: 0}, "total_free": {GPU: 0}}
    one, several = (
        nodes(NO_ROOM, {fit_error_reason: n}, **({**more, "insufficient": {GPU: n}}))
        for n in (1, 3)
    )
    phrases = [
        rejection_message(snapshot(), it).split("Of 4 nodes ")[1].split(". It")[0]
        for it in (one, several)
    ]
    assert phrases[0].startswith("1 ")
    assert phrases[1].startswith("3 ")
    assert all(len(phrase) > 5 for phrase in phrases)
    assert "3 node(s) " in kai_condition(snapshot(), several)[1]


@pytest.mark.parametrize("reason", UnschedulableReason)
def test_every_reason_has_a_title(reason: UnschedulableReason) -> None:
    """A word as Kubernetes writes reasons, and a sentence even where nothing else is known."""
    assert reason.title.isalpha()
    assert reason.title[0].isupper()
    assert "_" not in reason.title
    assert (
        rejection_message(snapshot(), rejected(reason, PreFilterDetails("so it is"))) == "so it is"
    )


def test_titles() -> None:
    """As the README lists them."""
    assert UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA.title == "NonPreemptibleOverQuota"
    assert len({reason.title for reason in UnschedulableReason}) == len(UnschedulableReason)


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
        quota(UnschedulableReason.EXCEEDS_LIMIT),
        ("OverLimit", "queue team may have at most 8 GPU"),
    ),
    Case(
        "a quota",
        quota(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA),
        ("NonPreemptibleOverQuota", "what cannot be preempted"),
    ),
    Case(
        "no queue",
        rejected(UnschedulableReason.QUEUE_MISSING, PreFilterDetails("there is no queue red")),
        ("QueueDoesNotExist", "there is no queue red"),
    ),
    Case(
        "no nodes",
        nodes(NO_ROOM, {FitErrorReason.TAINT: 1, FitErrorReason.ROOM: 2}, **SHORT),
        ("PodSchedulingErrors", HISTOGRAM),
    ),
    Case(
        "what KAI does not know has our name",
        rejected(
            UnschedulableReason.WAITING_FOR_STAGE, PreFilterDetails("the data set comes first")
        ),
        ("WaitingForStage", "the data set comes first"),
    ),
]


@pytest.mark.parametrize("case", FOR_KAI, ids=ids)
def test_for_kai(case: Case[Rejection, tuple[str, str]]) -> None:
    """Its reasons are kept, for tools that read those."""
    reason, message = kai_condition(snapshot(), case.given)
    assert reason == case.want[0]
    assert message.startswith(case.want[1])
