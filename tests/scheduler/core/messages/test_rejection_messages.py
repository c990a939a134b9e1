"""Why a PodGroup waits, in sentences with numbers, and what would help."""

from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.messages.rejection_messages import kai_condition, rejection_message
from scheduler.core.model.rejections import (
    ClusterEvent,
    FitErrorReason,
    IncompletePodSet,
    MissingPods,
    PreFilterCause,
    PreFilterFailure,
    QueueBoundExceeded,
    Rejection,
    RejectionDetails,
    StageProgress,
)
from scheduler.core.model.resources import MAX_REQUEST, NONE, ResourceColumns, ResourceKind
from scheduler.core.model.snapshot import Snapshot
from tests.support.case import Case, ids
from tests.support.snapshot.builder import GIB, Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.fit_errors import fit_errors
from trainer_kai.api.reasons import UnschedulableReason

CPU, MEMORY, POD, GPU = range(4)


def snapshot() -> Snapshot:
    node = SnapshotNode(labels=(0,) * 2, taints=(True,) * 4)
    build = Builder(nodes=[node] * 4, queues=[SnapshotQueue("department"), SnapshotQueue("team")])
    build.signature_row(signature(gpu=8, cpu=0.5, memory=1.5))
    build.signature_row(signature(cpu=0, memory=0))
    build.signature_row(signature(cpu=MAX_REQUEST / 1000, memory=MAX_REQUEST / GIB))
    build.signature_row(signature(rwop_claims=(0,)))
    return build.snapshot()


def rejected(reason: UnschedulableReason, details: RejectionDetails) -> Rejection:
    return Rejection(0, reason, details, is_resolvable=False, retry_on=ClusterEvent.ANY)


def nodes(reason: UnschedulableReason, counts: dict[FitErrorReason, int], **more: Any) -> Rejection:
    """Return a rejection for lack of nodes; a pod of 8 GPUs alone unless it is said otherwise."""
    return rejected(reason, fit_errors(reason, counts, **more))


def quota(reason: UnschedulableReason) -> Rejection:
    return rejected(reason, QueueBoundExceeded(1, ResourceKind.GPU, 8000, 6000, 3000))


def members(*missing: IncompletePodSet) -> Rejection:
    return rejected(UnschedulableReason.PODS_MISSING, MissingPods(missing))


NO_QUEUE: Final = PreFilterFailure(PreFilterCause.QUEUE_MISSING, ("red", "a, b"))
SHORT: Final[dict[str, Any]] = {
    "insufficient": {GPU: 2, CPU: 1},
    "largest_free": {CPU: 250, MEMORY: GIB, POD: 3, GPU: 4000},
    "total_free": {CPU: 300, MEMORY: 9 * GIB, POD: 9, GPU: 6000},
}
TWO_LEFT: Final[dict[str, Any]] = {**SHORT, "placed": 1, "unplaced": 2}
NO_MATCH, SCATTERED, NO_ROOM = (
    UnschedulableReason.NO_NODE_MATCHES,
    UnschedulableReason.FRAGMENTED,
    UnschedulableReason.NO_CAPACITY,
)

# a rejection -> the sentence
SENTENCES: list[Case[Rejection, str]] = [
    Case(
        "a pre-filter failure",
        rejected(UnschedulableReason.QUEUE_MISSING, NO_QUEUE),
        "Queue red does not exist. It cannot start before queue red is created, or before it "
        "names another queue (suspend its workload, change the label kai.scheduler/queue, and "
        "resume it): a, b",
    ),
    Case(
        "members that are missing",
        members(IncompletePodSet("driver", 0, 1), IncompletePodSet("worker", 3, 4)),
        "Pods are missing: 0 of 1 exist in sub-group driver; 3 of 4 exist in sub-group worker. It "
        "cannot start before the missing pods exist",
    ),
    Case(
        "members that are gated",
        members(IncompletePodSet("default", 2, 2, gated=1)),
        "Pods are missing: 2 of 2 exist, 1 of which has scheduling gates. It cannot start before "
        "the scheduling gates are removed",
    ),
    Case(
        "some are missing and some are gated",
        members(IncompletePodSet("default", 3, 4, gated=2)),
        "Pods are missing: 3 of 4 exist, 2 of which have scheduling gates. It cannot start before "
        "the missing pods exist and the scheduling gates are removed",
    ),
    Case(
        "no sub-group in particular is missing",
        members(),
        "Pods are missing: no sub-group that is incomplete can reach its minimum",
    ),
    Case(
        "no nodes at all",
        nodes(NO_MATCH, {}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it. It can "
        "start when a node that matches is added",
    ),
    Case(
        "of several obstacles the last comes first: it is the nearest to a fit",
        nodes(
            NO_MATCH,
            {FitErrorReason.TAINT: 1, FitErrorReason.CORDONED: 1, FitErrorReason.TOO_SMALL: 2},
        ),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 2 nodes "
        "are too small even when empty, 1 node has a taint that the pod does not tolerate, 1 node "
        "is cordoned. It can start when the pod requests less, the pod tolerates the taints of a "
        "node, or a node that matches is added, if enough is then free there",
    ),
    Case(
        "taints are named, the most frequent first",
        nodes(NO_MATCH, {FitErrorReason.TAINT: 4}, taints={0: 1, 1: 4}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "have taints that the pod does not tolerate (taint-1, taint-0). It can start when the pod "
        "tolerates the taints of a node, or a node that matches is added, if enough is then free "
        "there",
    ),
    Case(
        "at most three of them",
        nodes(NO_MATCH, {FitErrorReason.TAINT: 4}, taints={0: 1, 1: 1, 2: 1, 3: 2}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "have taints that the pod does not tolerate (taint-3, taint-0, taint-1, …). It can start "
        "when the pod tolerates the taints of a node, or a node that matches is added, if enough "
        "is then free there",
    ),
    Case(
        "labels are named as well",
        nodes(NO_MATCH, {FitErrorReason.SELECTOR: 4}, keys={"key-0": 1, "key-1": 4}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "do not match the node selector, node affinity or volumes of the pod (key-1, key-0). It "
        "can start when the pod selects other nodes, or a node that matches is added, if enough "
        "is then free there",
    ),
    Case(
        "a label that no node has, with the value that the pod wants",
        nodes(NO_MATCH, {FitErrorReason.SELECTOR: 4}, keys={"gpu-type=h100": 4}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "do not match the node selector, node affinity or volumes of the pod (gpu-type=h100; no "
        "node has the label gpu-type). It can start when the pod selects other nodes, or a node "
        "that matches is added, if enough is then free there",
    ),
    Case(
        "what all are too small for",
        nodes(
            NO_MATCH,
            {FitErrorReason.TOO_SMALL: 4},
            too_small={GPU: 4, MEMORY: 4},
            largest_allocatable={GPU: 4000, MEMORY: GIB},
        ),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "are too small even when empty (the largest has 1 GiB memory, 4 GPU). It can start when "
        "the pod requests less, or a node that matches is added, if enough is then free there",
    ),
    Case(
        "what only some are too small for",
        nodes(
            NO_MATCH,
            {FitErrorReason.TOO_SMALL: 3},
            too_small={GPU: 2, MEMORY: 3},
            largest_allocatable={GPU: 0, MEMORY: GIB},
        ),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 3 nodes "
        "are too small even when empty (3 with at most 1 GiB memory, 2 with at most 0 GPU). It "
        "can start when the pod requests less, or a node that matches is added, if enough is then "
        "free there",
    ),
    Case(
        "no pod can request less than one place",
        nodes(
            NO_MATCH,
            {FitErrorReason.TOO_SMALL: 1},
            too_small={POD: 1},
            largest_allocatable={POD: 0},
        ),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 1 node "
        "is too small even when empty (it has 0 places for pods). It can start when a node that "
        "matches is added",
    ),
    Case(
        "a pod that requests nothing",
        nodes(NO_MATCH, {}, signature=1),
        "A pod requests no resources, and none of the 4 nodes fits it. It can start when a node "
        "that matches is added",
    ),
    Case(
        "a request that is larger than any number",
        nodes(NO_MATCH, {FitErrorReason.TOO_SMALL: 4}, signature=2),
        "A pod requests more CPU than any node can have, more memory than any node can have, and "
        "none of the 4 nodes fits it: 4 nodes are too small even when empty. It can start when "
        "the pod requests less, or a node that matches is added, if enough is then free there",
    ),
    Case(
        "how far a gang got",
        nodes(NO_MATCH, {FitErrorReason.PORT: 4}, placed=2, needed=5),
        "2 of 5 pods fit; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 "
        "nodes then fits it: 4 nodes have a host port of the pod in use. It can start when the "
        "host port is free, or a node that matches is added, if enough is then free there",
    ),
    Case(
        "nodes that only pods of the PodGroup exclude",
        nodes(NO_MATCH, {FitErrorReason.PORT: 4}, own_counts={FitErrorReason.PORT: 4}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "have a host port of the pod in use (4 because of pods of the same PodGroup). It can "
        "start when a node that matches is added",
    ),
    Case(
        "nodes that partly pods of the PodGroup exclude",
        nodes(NO_MATCH, {FitErrorReason.PORT: 4}, own_counts={FitErrorReason.PORT: 3}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "have a host port of the pod in use (3 because of pods of the same PodGroup). It can "
        "start when the host port is free, or a node that matches is added, if enough is then "
        "free there",
    ),
    Case(
        "a claim in use is not free on a node that is added",
        nodes(NO_MATCH, {FitErrorReason.CLAIM: 4}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "cannot use a PersistentVolumeClaim that is in use elsewhere. It can start when the "
        "PersistentVolumeClaim is no longer in use, if enough is then free there",
    ),
    Case(
        "pods that share a claim for one pod never fit",
        nodes(
            NO_MATCH, {FitErrorReason.CLAIM: 4}, own_counts={FitErrorReason.CLAIM: 4}, signature=3
        ),
        "A pod requests 1 CPU, 1 GiB memory, and none of the 4 nodes fits it: 4 nodes cannot use "
        "a PersistentVolumeClaim that is in use elsewhere (4 because of pods of the same "
        "PodGroup). It can never start as it is: pods of the PodGroup exclude each other",
    ),
    Case(
        "pods that share a claim for one node fit on a larger one",
        nodes(NO_MATCH, {FitErrorReason.CLAIM: 4}, own_counts={FitErrorReason.CLAIM: 4}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 4 nodes "
        "cannot use a PersistentVolumeClaim that is in use elsewhere (4 because of pods of the "
        "same PodGroup). It can start when a node that matches is added",
    ),
    Case(
        "no capacity: what most nodes lack first",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 2, FitErrorReason.TAINT: 1}, **SHORT),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 2 nodes "
        "have too little free (at most 4 GPU, 0.25 CPU on one node), 1 node has a taint that the "
        "pod does not tolerate. Together the nodes have 0.3 CPU, 6 GPU free. It can start when "
        "one of the nodes has 0.5 CPU, 8 GPU free",
    ),
    Case(
        "several pods are left",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 2}, **TWO_LEFT, needed=3, fitting=2),
        "1 of 3 pods fits; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the "
        "4 nodes then has 8 GPU, 0.5 CPU free: 2 nodes have too little free (at most 4 GPU, 0.25 "
        "CPU on one node). Together the nodes then have 0.3 CPU, 6 GPU free. It can start when "
        "the nodes then have enough free for 2 such pods (1 CPU, 16 GPU)",
    ),
    Case(
        "one node has all that is free",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 1}, **{**SHORT, "total_free": SHORT["largest_free"]}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes has 8 GPU, 0.5 "
        "CPU free: 1 node has too little free (4 GPU, 0.25 CPU). It can start when that node has "
        "0.5 CPU, 8 GPU free",
    ),
    Case(
        "too little even without other pods",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 2, FitErrorReason.CORDONED: 1}, **TWO_LEFT, needed=3),
        "1 of 3 pods fits; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the "
        "4 nodes then fits it: 2 nodes have too little free (at most 4 GPU, 0.25 CPU on one "
        "node), 1 node is cordoned. Even if no other pods ran, only 2 of 3 pods would fit. It can "
        "start when a node is uncordoned, or a node that matches is added, if enough is then free"
        " for 2 such pods (1 CPU, 16 GPU), or when the PodGroup requests less",
    ),
    Case(
        "too little for the pods of one signature",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 4}, **TWO_LEFT, needed=9),
        "1 of 9 pods fits; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the "
        "4 nodes then has 8 GPU, 0.5 CPU free: 4 nodes have too little free (at most 4 GPU, 0.25 "
        "CPU on one node). Even if no other pods ran, only 1 of 2 pods like this one would fit. It "
        "can start when a node that matches is added, if enough is then free for 2 such pods (1 "
        "CPU, 16 GPU), or when the PodGroup requests less",
    ),
    Case(
        "what the other pods of the PodGroup take",
        nodes(
            NO_ROOM,
            {FitErrorReason.ROOM: 4},
            **{**TWO_LEFT, "insufficient": {GPU: 4}, "placed": 5},
            needed=7,
            placed_before=((0, 1), (1, 2), (0, 1), (2, 1)),
        ),
        "5 of 7 pods fit; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 "
        "nodes then has 8 GPU free: 4 nodes have too little free (at most 4 GPU on one node). Its "
        "pods that fit take 16 GPU (2 with 8 GPU). Even if no other pods ran, "
        "only 6 of 7 pods would fit. It can start when a node that matches is added, if enough is "
        "then free for 2 such pods (16 GPU), or when the PodGroup requests less",
    ),
    Case(
        "what other pods of several sizes take",
        nodes(
            NO_ROOM,
            {FitErrorReason.ROOM: 4},
            **{**TWO_LEFT, "insufficient": {CPU: 4}, "placed": 4},
            needed=6,
            placed_before=((0, 1), (3, 2), (0, 1)),
        ),
        "4 of 6 pods fit; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 "
        "nodes then has 0.5 CPU free: 4 nodes have too little free (at most 0.25 CPU on one "
        "node). Its pods that fit take 3 CPU (2 with 1 CPU, 2 with 0.5 CPU). Even if no other "
        "pods ran, only 5 of 6 pods would fit. It can start when a node that matches is added, if "
        "enough is then free for 2 such pods (1 CPU), or when the PodGroup requests less",
    ),
    Case(
        "none of the pods of one signature",
        nodes(NO_ROOM, {FitErrorReason.ROOM: 4}, **TWO_LEFT, needed=9, fitting=0),
        "1 of 9 pods fits; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the "
        "4 nodes then has 8 GPU, 0.5 CPU free: 4 nodes have too little free (at most 4 GPU, 0.25 "
        "CPU on one node). Even if no other pods ran, no pod like this one would fit beside the "
        "other pods of the PodGroup. It can start when a node that matches is added, if enough is "
        "then free for 2 such pods (1 CPU, 16 GPU), or when the PodGroup requests less",
    ),
    Case(
        "many pods and no node that fits",
        nodes(NO_MATCH, {FitErrorReason.CORDONED: 4}, needed=3, placed=1, unplaced=2),
        "1 of 3 pods fits; the next pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the "
        "4 nodes then fits it: 4 nodes are cordoned. It can start when a node is uncordoned, or a"
        " node that matches is added, if enough is then free for 2 such pods",
    ),
    Case(
        "nodes that leave",
        nodes(NO_MATCH, {FitErrorReason.LEAVING: 1, FitErrorReason.TAINT: 3}, taints={0: 3}),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes fits it: 3 nodes "
        "have taints that the pod does not tolerate (taint-0), 1 node leaves the cluster. It can "
        "start when the pod tolerates the taints of a node, a node that leaves stays after all, "
        "or a node that matches is added, if enough is then free there",
    ),
    Case(
        "fragmented room is told with the largest part",
        nodes(
            SCATTERED,
            {FitErrorReason.ROOM: 2},
            **{**SHORT, "total_free": {**SHORT["total_free"], GPU: 8000}},
        ),
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes has 8 GPU, 0.5 "
        "CPU free: 2 nodes have too little free (at most 4 GPU, 0.25 CPU on one node). Enough is "
        "free in total, but too little on each node. It can start when one of the nodes has 0.5 "
        "CPU, 8 GPU free",
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
        "A pod requests 0.5 CPU, 1.5 GiB memory, 8 GPU, and none of the 4 nodes has 1 place for "
        "pods free: 4 nodes have too little free (at most 0 places for pods on one node). It can "
        "start when one of the nodes has 1 place for pods free",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Rejection, str]) -> None:
    assert rejection_message(snapshot(), case.given) == case.want


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
    assert "0.5 CPU" not in report
    assert "1000 nvidia.com/mig-1g.5gb, and the only node does not fit it: 1 node is too" in report


def test_gpus_of_two_vendors_are_named_apart() -> None:
    """A pod for one does not run on the other."""
    two = Builder(nodes=[SnapshotNode()])
    two.signature_row(signature(gpu=1))
    resources = ResourceColumns(
        ("cpu", "memory", "amd.com/gpu", "nvidia.com/gpu"), (0, 1, 2, 2), (), 0, NONE, (2, 3)
    )
    report = rejection_message(replace(two.snapshot(), resources=resources), nodes(NO_MATCH, {}))
    assert "0.001 amd.com/gpu, 1 nvidia.com/gpu, and the only node does not" in report


@pytest.mark.parametrize("fit_error_reason", FitErrorReason)
def test_every_obstacle_has_words(fit_error_reason: FitErrorReason) -> None:
    """For one node, for several, and for KAI's tools."""
    more = {"insufficient": {GPU: 3}, "largest_free": {GPU: 0}, "total_free": {GPU: 0}}
    one, several = (
        nodes(NO_ROOM, {fit_error_reason: n}, **({**more, "insufficient": {GPU: n}}))
        for n in (1, 3)
    )
    phrases = [
        rejection_message(snapshot(), it).partition(": ")[2].partition(". ")[0]
        for it in (one, several)
    ]
    assert phrases[0].startswith("1 ")
    assert phrases[1].startswith("3 ")
    assert all(len(phrase) > 5 for phrase in phrases)
    assert "3 node(s) " in kai_condition(snapshot(), several)[1]


HISTOGRAM: Final = (
    "no nodes with enough resources were found: "
    "1 node(s) didn't have enough resources: cpu, "
    "1 node(s) have taints it does not tolerate, "
    "2 node(s) didn't have enough resources: nvidia.com/gpu."
)

# a rejection -> KAI's reason, and the beginning of its message
FOR_KAI: list[Case[Rejection, tuple[str, str]]] = [
    Case(
        "a limit is OverLimit for KAI",
        quota(UnschedulableReason.EXCEEDS_LIMIT),
        ("OverLimit", "Queue team has a limit of 8 GPU"),
    ),
    Case(
        "a quota is NonPreemptibleOverQuota for KAI",
        quota(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA),
        ("NonPreemptibleOverQuota", "Queue team has a quota of 8 GPU"),
    ),
    Case(
        "a missing queue is told to KAI",
        rejected(UnschedulableReason.QUEUE_MISSING, NO_QUEUE),
        ("QueueDoesNotExist", "Queue red does not exist"),
    ),
    Case(
        "a lack of nodes is PodSchedulingErrors for KAI",
        nodes(NO_ROOM, {FitErrorReason.TAINT: 1, FitErrorReason.ROOM: 2}, **SHORT),
        ("PodSchedulingErrors", HISTOGRAM),
    ),
    Case(
        "what KAI does not know has our name",
        rejected(
            UnschedulableReason.WAITING_FOR_STAGE,
            PreFilterFailure(
                PreFilterCause.EARLIER_STAGE,
                (StageProgress("data", is_complete=True, done=0, needed=2),),
            ),
        ),
        ("WaitingForStage", "0 of 2 pods of replicatedJob data have succeeded"),
    ),
]


@pytest.mark.parametrize("case", FOR_KAI, ids=ids)
def test_for_kai(case: Case[Rejection, tuple[str, str]]) -> None:
    """Its reasons are kept, for tools that read those."""
    reason, message = kai_condition(snapshot(), case.given)
    assert reason == case.want[0]
    assert message.startswith(case.want[1])
