"""How many pods must exist, what a PodGroup lacks, and which places are kept."""

import json
from typing import Any

import pytest

from scheduler.state.podgroups.missing_pods import (
    Shortage,
    min_existing_pods,
    reserve_lost_places,
    shortage_of,
)
from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    cluster_cache,
    group,
    jobset_pod,
    make_object,
    pod,
    workload,
)
from trainer_kai.api.decode import decode
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import JOBS, JOBSETS
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import Workload

_ANTICIPATED = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1, "requests": {}}
_STAGED = {"annotations": {"trainer-kai.dev/anticipated": json.dumps({"later": [_ANTICIPATED]})}}


def podset(name: str, count: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "minMember": count, **more}


def staged(least: int | None) -> dict[str, Any]:
    """Return the spec that the podgrouper writes for workers and their launcher."""
    subs = [podset("n-replica-0", 2), podset("l-replica-0", 1)]
    return {"subGroups": subs, "minSubGroup": least, "meta": _STAGED}


def named_later() -> dict[str, Any]:
    later = {**_ANTICIPATED, "subGroupPrefix": "launcher"}
    meta = {"annotations": {"trainer-kai.dev/anticipated": json.dumps({"later": [later]})}}
    return {"subGroups": [podset("worker", 2), podset("launcher", 1)], "meta": meta}


CASES: list[Case[dict[str, Any], int]] = [
    Case("as many as it says", {"minMember": 8}, 8),
    Case("one if it says nothing", {}, 1),
    Case("those of all PodSets", {"subGroups": [podset("a", 2), podset("b", 3)]}, 5),
    Case("those that come later are not awaited", staged(None), 2),
    Case("also where it is said that all are needed", staged(2), 2),
    Case("a PodSet that has the whole name of those that come later", named_later(), 2),
    Case(
        "where some PodSets are enough, those of the smallest",
        {"subGroups": [podset("a", 2), podset("b", 3), podset("c", 4)], "minSubGroup": 2},
        5,
    ),
    Case(
        "the same in between",
        {
            "subGroups": [
                {"name": "n", "minSubGroup": 1},
                podset("n-0", 4, parent="n"),
                podset("n-1", 4, parent="n"),
                podset("l", 1),
            ],
            "minSubGroup": 2,
        },
        5,
    ),
    Case("nothing is known of what is wrong", {"subGroups": [podset("a", 2), podset("a", 3)]}, 0),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_least_pods(case: Case[dict[str, Any], int]) -> None:
    """With fewer pods nothing of the PodGroup is placed."""
    encoded = decode(PodGroup, json.dumps(group("g", **case.given)).encode())
    assert min_existing_pods(encoded) == case.want


Fields = dict[str, Any]


def read(*objects: Fields) -> tuple[PodGroup, list[Pod], Workload | None]:
    """Return the PodGroup "g", the pods, and the JobSet "j" if it exists."""
    cluster = cluster_cache(*objects)
    pods = [cluster.pods[key] for key in sorted(cluster.pods)]
    jobset = cluster.workload_objects[JOBSETS].get(Key("ns", "j"))
    workload = jobset_workload(jobset) if jobset else None
    return cluster.pod_groups[Key("ns", "g")], pods, workload


def of_job(meta: Fields | None = None, **fields: Any) -> tuple[PodGroup, list[Pod], Any]:
    """Return the PodGroup "pg-x" of a Job, its two pods, one without a node, and the Job."""
    itself, *others = workload("Job", "x", "a")
    itself["metadata"] |= meta or {}
    del others[-1]["spec"]["nodeName"]
    cluster = cluster_cache(itself | fields, *others)
    job = job_workload(cluster.workload_objects[JOBS][Key("ns", "x")])
    return cluster.pod_groups[Key("ns", "pg-x")], [*cluster.pods.values()], job


_COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
_CONTROLLED = {"ownerReferences": [{"kind": "Sweep", "name": "s", "uid": "s", "controller": True}]}
# what is said of the Job -> whether it replaces the pod that it lacks
OF_JOBS: list[Case[Any, bool]] = [
    Case("it runs", of_job(), True),
    Case("it is suspended", of_job(spec={"suspend": True}), False),
    Case("it is Complete", of_job(status=_COMPLETE), False),
    Case("it is being deleted", of_job({"deletionTimestamp": "2026-01-05T08:00:00Z"}), False),
    Case("another controller owns it: that may replace the pod", of_job(_CONTROLLED), True),
]


@pytest.mark.parametrize("case", OF_JOBS, ids=ids)
def test_whether_a_job_replaces_pods(case: Case[Any, bool]) -> None:
    """Its PodGroup has no sub-groups, so all its pods are of the only PodSet."""
    podgroup, pods, job = case.given
    wanted = Shortage(1, 2, all_exist=True) if case.want else None
    assert shortage_of(podgroup, pods, job) == wanted


def of_jobset(**spec: Any) -> list[Fields]:
    """Return a PodGroup of the JobSet "j", and the JobSet."""
    subs = [{"name": f"{name}-replica-0", "minMember": 1} for name in ("n", "l")]
    owned = group("g", meta={"ownerReferences": [JOBSET]}, subGroups=subs, **spec)
    return [owned, make_object("JobSet", "j", {"uid": "u"}, spec={})]


def test_one_of_two_sub_groups_may_be_enough() -> None:
    """A PodGroup that runs with its minimum lacks nothing."""
    pods = jobset_pod("a", "g", "n", node="x"), jobset_pod("b", "g", "l")
    assert shortage_of(*read(*of_jobset(minSubGroup=1), *pods)) is None
    assert shortage_of(*read(*of_jobset(), *pods)) == Shortage(1, 2, all_exist=True)


def test_each_job_has_attempts_of_its_own() -> None:
    """One Job was restarted alone; the pods of the other still count."""
    again = jobset_pod("b", "g", "l", node="x", job_attempt=1)
    assert shortage_of(*read(*of_jobset(), jobset_pod("a", "g", "n", node="x"), again)) is None


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_what_is_still_to_be_made_does_not_wait_for_room(phase: str) -> None:
    """One pod is gone, or has failed, and no other has been created yet."""
    pods = [pod("a", "g", node="x")]
    if phase == "Failed":
        pods.append(pod("b", "g", node="x", phase=phase))
    assert shortage_of(*read(group("g", minMember=2), *pods)) == Shortage(1, 2, all_exist=False)


def test_in_flight_reservations_stay_known() -> None:
    """A pod that came back is lost, while other pods of its PodGroup have not come back yet."""
    away = {"nodes": {"y": 1}, "cause": "move", "until": "2026-01-05T08:05:00Z"}
    reserved = json.dumps({"l-replica-0": away})
    owned, jobset = of_jobset()
    owned["metadata"]["annotations"] = {"trainer-kai.dev/reserved": reserved}
    podgroup, (lost,), its = read(owned, jobset, jobset_pod("a", "g", "n", node="x"))
    text = reserve_lost_places([lost], [], podgroup, its)
    assert text is not None
    kept = {"nodes": {"x": 1}, "cause": "repair"}
    assert json.loads(text) == {"l-replica-0": away, "n-replica-0": kept}


def test_the_place_of_one_that_could_be_spared() -> None:
    """The PodGroup has its minimum without the pod, too: its place is kept all the same."""
    podgroup, (lost, other), jobset = read(
        *of_jobset(minSubGroup=1),
        jobset_pod("a", "g", "n", node="x"),
        jobset_pod("b", "g", "l", node="y"),
    )
    text = reserve_lost_places([lost], [other], podgroup, jobset)
    assert text is not None
    assert json.loads(text) == {"n-replica-0": {"nodes": {"x": 1}, "cause": "repair"}}
