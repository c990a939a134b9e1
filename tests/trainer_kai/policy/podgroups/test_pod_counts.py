"""Only pods of the newest attempt count, and those that succeeded do too."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.pod import Pod
from trainer_kai.policy.podgroups.grouping import (
    JobPodCounts,
    PodObservation,
    count_pods,
    observe_pod,
)
from trainer_kai.policy.workloads.jobset import jobset_pod_place

Obj = dict[str, Any]


def pod(job: str = "node", number: int = 0, **fields: Any) -> Obj:
    """Return a pod; keywords are attempt, retry, phase, node and going."""
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/job-index": str(number),
        "jobset.sigs.k8s.io/restart-attempt": str(fields.get("attempt", 0)),
    }
    if "retry" in fields:
        labels["jobset.sigs.k8s.io/job-restart-attempt"] = str(fields["retry"])
    meta: Obj = {"name": "p", "labels": labels}
    if fields.get("going"):
        meta["deletionTimestamp"] = "2026-01-05T09:00:00Z"
    spec = {"nodeName": "n"} if fields.get("node") else {}
    return {"metadata": meta, "spec": spec, "status": {"phase": fields.get("phase", "Pending")}}


DONE: Obj = {"phase": "Succeeded", "node": True}
RUNNING: Obj = {"phase": "Running", "node": True}
# pods -> what they are good for
CASES: list[Case[list[Obj], dict[str, JobPodCounts]]] = [
    Case("no pods", [], {}),
    Case(
        "waiting, bound and done",
        [pod(), pod(node=True), pod(**RUNNING), pod(**DONE)],
        {"node-replica-0": JobPodCounts(waiting=1, bound=2, succeeded=1)},
    ),
    Case(
        "each Job for itself",
        [pod(), pod(number=1)],
        {"node-replica-0": JobPodCounts(waiting=1), "node-replica-1": JobPodCounts(waiting=1)},
    ),
    Case(
        "a failed pod does not count",
        [pod(phase="Failed", node=True)],
        {"node-replica-0": JobPodCounts()},
    ),
    Case(
        "a terminating pod only occupies",
        [pod(**RUNNING, going=True), pod(going=True), pod(node=True, phase="Failed", going=True)],
        {"node-replica-0": JobPodCounts(occupying=1)},
    ),
    Case(
        "a succeeded pod counts, terminating or not",
        [pod(**DONE, going=True)],
        {"node-replica-0": JobPodCounts(succeeded=1)},
    ),
    Case(
        "an older attempt just occupies, also in another Job",
        [
            pod(**RUNNING),
            pod(**DONE),
            pod("launcher", **RUNNING),
            pod(attempt=10),
            pod(attempt=9, **RUNNING),
        ],
        {
            "node-replica-0": JobPodCounts(waiting=1, occupying=2),
            "launcher-replica-0": JobPodCounts(occupying=1),
        },
    ),
    Case(
        "a Job that is made again is only its own affair",
        [pod(retry=0, **RUNNING), pod(retry=1), pod("launcher", **RUNNING)],
        {
            "node-replica-0": JobPodCounts(waiting=1, occupying=1),
            "launcher-replica-0": JobPodCounts(bound=1),
        },
    ),
    Case(
        "a newer attempt outranks how often a Job was made again",
        [pod(retry=5, **RUNNING), pod(attempt=1, retry=0)],
        {"node-replica-0": JobPodCounts(waiting=1, occupying=1)},
    ),
    Case(
        "a pod of a later stage that is made again waits beside those that are bound",
        [pod(**RUNNING), pod("launcher", phase="Failed", node=True), pod("launcher")],
        {"node-replica-0": JobPodCounts(bound=1), "launcher-replica-0": JobPodCounts(waiting=1)},
    ),
    Case(
        "labels that are no numbers are the first attempt",
        [pod(attempt="x"), pod(attempt=-1)],
        {"node-replica-0": JobPodCounts(waiting=2)},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_counts(case: Case[list[Obj], dict[str, JobPodCounts]]) -> None:
    """For each Job, in whatever order its pods are seen."""
    sightings = [_observed(obj) for obj in case.given]

    assert count_pods(sightings) == case.want
    assert count_pods(reversed(sightings)) == case.want


def test_an_observation_has_nothing_else() -> None:
    """What is not on the pod is the first of everything."""
    assert _observed({"metadata": {"name": "p"}}) == PodObservation(
        "-replica-", (0, 0), "", is_bound=False, is_terminating=False
    )


def _observed(obj: Obj) -> PodObservation:
    found = decode(Pod, encode(obj))
    return observe_pod(found, jobset_pod_place(found.metadata.labels))
