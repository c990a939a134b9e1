"""A tenant relabels what runs, so that it need never give back what it borrowed.

Labels of a JobSet and of a TrainJob may be written by any user with the role `edit`. The PodGroup,
which the scheduler goes by, is the podgrouper's; the label of Kueue is the TrainJob's own.
"""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.forged_jobsets import jobset, trainjob
from tests.hostile.objects import TENANT, VICTIMS, cluster, pod, pod_group
from tests.support.case import Case, ids
from tests.trainer_kai.podgrouper.running_podgrouper import FakeApiServer, grouping, straggler
from tests.trainer_kai.podgrouper.running_podgrouper import jobset as admitted_jobset

Obj = dict[str, Any]

_QUEUE: Final = "kai.scheduler/queue"
_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
_TERMINATION_GRACE: Final = "kai.scheduler/staleness-grace-period"
_KUEUE: Final = {"kueue.x-k8s.io/queue-name": "mine"}
_CLASSES: Final = {"low": 10, "train": 50, "inference": 125, "system-node-critical": 2_000_001_000}


def bound(name: str, job: Obj, group: str) -> Obj:
    """Return a pod of the JobSet that runs."""
    made = straggler(name, job)
    made["metadata"]["annotations"] = {"pod-group-name": group}
    return {**made, "spec": {"nodeName": "n0"}, "status": {"phase": "Running"}}


def priority_class(name: str, value: int) -> Obj:
    """Return a PriorityClass."""
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    return {"metadata": meta, "value": value, "globalDefault": name == "train"}


def meant(field: str, name: str, value: str) -> tuple[str, str, str]:
    """Return what a tenant writes on the JobSet: labels or annotations, which, and what."""
    return field, name, value


CHANGES: Final[list[Case[tuple[str, str, str], str]]] = [
    Case(
        "not preemptible",
        meant("labels", _PREEMPTIBILITY, "non-preemptible"),
        "preemptibility remains none",
    ),
    Case("a class of 100 or more", meant("labels", "priorityClassName", "inference"), "'train'"),
    Case("another queue", meant("labels", _QUEUE, "red"), "queue remains 'team-a'"),
    Case(
        "in part for ever",
        meant("annotations", _TERMINATION_GRACE, "-1s"),
        "stalenessGracePeriod remains none",
    ),
    Case(
        "another node pool",
        meant("labels", "kai.scheduler/node-pool", "far"),
        "node pool remains none",
    ),
]


@pytest.mark.parametrize("case", CHANGES, ids=ids)
async def test_a_running_jobset_becomes_no_harder_to_evict(
    case: Case[tuple[str, str, str], str],
) -> None:
    """Its PodGroup is not written; an Event names the label, what is kept, and until when."""
    field, name, value = case.given
    writes, report = await relabelled({field: {name: value}})

    assert len(writes) == 1
    (message,) = report
    assert message.startswith(f"metadata.{field}[{name}]: ")
    assert case.want in message
    assert "while pods of the PodGroup run" in message


async def test_it_does_become_easier_to_evict() -> None:
    """That helps others at once: a smaller class."""
    writes, report = await relabelled({"labels": {"priorityClassName": "low"}})

    assert [it["spec"]["priorityClassName"] for it in writes] == ["train", "low"]
    assert report == []


async def test_what_is_not_copied_counts_when_the_last_pod_is_gone() -> None:
    """As soon as no pod is on a node, and not before; the label need not be written again."""
    writes, _ = await relabelled({"labels": {_QUEUE: "team-b"}}, is_gone=True)

    assert [it["spec"]["queue"] for it in writes] == ["team-a", "team-b"]
    assert [it["metadata"]["labels"][_QUEUE] for it in writes] == ["team-a", "team-b"]


async def relabelled(
    changes: Mapping[str, Mapping[str, str]], *, is_gone: bool = False
) -> tuple[list[Obj], list[str]]:
    """Relabel a JobSet that runs; return what became of its PodGroup, and what it was told."""
    known = FakeApiServer()
    obj, job = admitted_jobset()
    known.lists |= {"jobsets": [obj], "jobs": [job]}
    known.lists["priorityclasses"] = [priority_class(*it) for it in _CLASSES.items()]
    async with grouping(known):
        await known.until("podgroups", 1)
        (_, group) = known.writes_of("podgroups")[0]
        pods = [bound(name, job, group["metadata"]["name"]) for name in ("a", "b")]
        for it in pods:
            known.send_event("pods", "ADDED", it)
        await known.until_seen()
        meta = obj["metadata"]
        for field, wishes in changes.items():
            meta[field] = {**meta[field], **wishes}
        meta["resourceVersion"] = "11"
        known.send_event("jobsets", "MODIFIED", obj)
        await known.until_seen()
        for it in pods if is_gone else ():
            known.send_event("pods", "DELETED", it)
        await known.until_seen()
    events = [body for _, body in known.writes_of("events")]
    report = [it["message"] for it in events if it["reason"] == "NotWhileRunning"]
    return [body for _, body in known.writes_of("podgroups")], report


def borrowing(meta: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Obj]:
    """Return a TrainJob of the tenant that has all GPUs of the cluster."""
    job = trainjob("mine")
    made = {**job, "metadata": {**job["metadata"], **meta}, "spec": {"runtimeRef": {"name": "r"}}}
    made["spec"] |= spec
    owned = jobset("mine", [], made)
    group = pod_group(TENANT, "mine", 16)
    owner = {"apiVersion": owned["apiVersion"], "kind": "JobSet", "name": "mine"}
    group["metadata"]["ownerReferences"] = [{**owner, "uid": owned["metadata"]["uid"]}]
    pods = [pod(TENANT, f"p{n}", 1, "mine", f"n{n % 2}") for n in range(16)]
    for it in pods:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mine-node-0", "uid": "j"}
        it["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return [made, owned, group, *pods]


def claims() -> list[Obj]:
    """Return a TrainJob of each victim, for as much as it owns."""
    return [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]


NON_EVICTABLE: Final[list[Case[tuple[Obj, Obj], None]]] = [
    Case("the label of Kueue, which is not there", ({"labels": _KUEUE}, {}), None),
    Case("a controller that is not Trainer's", ({}, {"managedBy": "example.com/mine"}), None),
]


@pytest.mark.parametrize("case", NON_EVICTABLE, ids=ids)
def test_what_a_trainjob_says_of_itself_keeps_nothing(
    case: Case[tuple[Obj, Obj], None], simulate: SimulateFixture
) -> None:
    """Both victims get what they own."""
    measured = simulate([*cluster(), *borrowing(*case.given), *claims()])

    assert len(measured.evictions) == 16
    assert not [name for name in measured.waiting if name.startswith(VICTIMS)]


def test_nor_do_labels_of_pods_in_a_group(simulate: SimulateFixture) -> None:
    """Only what the PodGroup says counts, also of pods for which it has no sub-group."""
    labels = {_PREEMPTIBILITY: "non-preemptible", "priorityClassName": "system-node-critical"}
    objects = borrowing({}, {})
    for it in objects:
        if it["kind"] == "Pod":
            it["metadata"]["labels"] |= labels
            if int(it["metadata"]["name"][1:]) % 2:
                it["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "nowhere"

    measured = simulate([*cluster(), *objects, *claims()])

    assert len(measured.evictions) == 16
