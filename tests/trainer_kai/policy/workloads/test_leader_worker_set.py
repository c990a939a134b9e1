"""LeaderWorkerSets as workloads: a PodGroup for each group, and the sub-groups of its segments."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.workloads.objects import (
    findings,
    in_words,
    manifests,
    template,
    workload,
)
from trainer_kai.api.names import ANTICIPATED
from trainer_kai.policy.podgroups.anticipated import read_anticipated
from trainer_kai.policy.podgroups.grouping import plan_podgroups
from trainer_kai.policy.workloads.leader_worker_set import LWS_KIND, lws_pod_place
from trainer_kai.policy.workloads.shapes import subgroup_of
from trainer_kai.policy.workloads.workload import PodPlace, Workload

SEGMENT = "kai.scheduler/segment-size"


def lws(size: int, policy: Any = None, *, status: int = 0, **fields: Any) -> Workload:
    """Return a set of one group; *policy* is the size of its segments, or its policy."""
    if isinstance(policy, int):
        policy = {"subGroupSize": policy}
    groups = {"size": size, "workerTemplate": template(), **fields.pop("groups", {})}
    if policy is not None:
        groups["subGroupPolicy"] = policy
    annotations = fields.pop("annotations", {})
    spec = {"leaderWorkerTemplate": groups, **fields}
    return workload(LWS_KIND, spec, {"replicas": status}, annotations=annotations)


def excluded(size: int) -> Any:
    return {"subGroupSize": size, "subGroupPolicyType": "LeaderExcluded"}


GROUPS: list[Case[Workload, str]] = [
    Case("a leader and its workers", lws(5), "pg-x-U-group-0 2: leader 1, workers 4"),
    Case("a leader alone", lws(1), "pg-x-U-group-0 1: leader 1"),
    Case(
        "vector 18: full segments, and the leader in the first one",
        lws(5, 2),
        "pg-x-U-group-0 2: segment-0 2, segment-0/leader 1, segment-0/workers 2, segment-1 2",
    ),
    Case(
        "the leader is one of the first segment",
        lws(6, 2),
        "pg-x-U-group-0 3: segment-0 2, segment-0/leader 1, segment-0/workers 1, segment-1 2, "
        "segment-2 2",
    ),
    Case(
        "the last segment is smaller",
        lws(6, 4),
        "pg-x-U-group-0 2: segment-0 2, segment-0/leader 1, segment-0/workers 3, segment-1 2",
    ),
    Case(
        "one segment",
        lws(4, 4),
        "pg-x-U-group-0 1: segment-0 2, segment-0/leader 1, segment-0/workers 3",
    ),
    Case(
        "a leader outside of the segments",
        lws(5, excluded(2)),
        "pg-x-U-group-0 3: leader 1, segment-0 2, segment-1 2",
    ),
    Case(
        "the annotation",
        lws(5, annotations={SEGMENT: "2"}),
        "pg-x-U-group-0 2: segment-0 2, segment-0/leader 1, segment-0/workers 2, segment-1 2",
    ),
    Case(
        "the policy is stronger",
        lws(5, excluded(4), annotations={SEGMENT: "2"}),
        "pg-x-U-group-0 2: leader 1, segment-0 4",
    ),
    Case("segments of one pod", lws(3, 1), "pg-x-U-group-0 2: leader 1, workers 2"),
    Case(
        "workers that cannot be divided",
        lws(6, excluded(2)),
        "pg-x-U-group-0 2: leader 1, workers 5",
    ),
    Case("no number", lws(3, annotations={SEGMENT: "x"}), "pg-x-U-group-0 2: leader 1, workers 2"),
    Case(
        "a leader of another scheduler",
        lws(5, 2, groups={"leaderTemplate": template("default-scheduler")}),
        "pg-x-U-group-0 2: segment-0 1, segment-0/workers 2, segment-1 2",
    ),
]


@pytest.mark.parametrize("case", GROUPS, ids=ids)
def test_the_podgroup_of_a_group(case: Case[Workload, str]) -> None:
    assert in_words(case.given) == [case.want]


COUNTS: list[Case[Workload, int]] = [
    Case("those of the spec", lws(2, replicas=3), 3),
    Case("an update has more", lws(2, replicas=3, status=4), 4),
    Case("it shrinks", lws(2, replicas=0, status=2), 2),
    Case("none", lws(2, replicas=0), 0),
    Case("as many as are allowed", lws(2, replicas=10**9), 1000),
]


@pytest.mark.parametrize("case", COUNTS, ids=ids)
def test_each_group_has_a_podgroup(case: Case[Workload, int]) -> None:
    assert in_words(case.given) == [
        f"pg-x-U-group-{number} 2: leader 1, workers 1" for number in range(case.want)
    ]


FAULTS: list[Case[Workload, list[str]]] = [
    Case(
        "too many groups",
        lws(1, replicas=1001),
        ["spec.replicas: 1001 groups: those from 1000 on are in no PodGroup"],
    ),
    Case(
        "segments that are too large",
        lws(3, 4),
        [
            (
                "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: ignored: segments of 4 "
                "pods must be from 2 up to the size, 3"
            )
        ],
    ),
    Case(
        "workers that cannot be divided",
        lws(6, excluded(2)),
        [
            (
                "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: ignored: 5 workers "
                "cannot be divided by 2 (LeaderExcluded)"
            )
        ],
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_the_findings_of_a_set(case: Case[Workload, list[str]]) -> None:
    assert findings(case.given) == case.want


def later_of(it: Workload) -> list[tuple[str, int, int]]:
    text = manifests(it)[0]["metadata"]["annotations"].get(ANTICIPATED, "")
    return [(it.sub_group_prefix, it.replicas, it.count) for it in read_anticipated(text).later]


def test_workers_that_wait_for_their_leader_are_a_later_part() -> None:
    """In KAI the minimum is 1 until the leader is placed; with segments it waits for ever."""
    ready: Any = {"startupPolicy": "LeaderReady"}

    assert later_of(lws(5)) == []
    assert later_of(lws(5, **ready)) == [("workers", 1, 4)]
    assert later_of(lws(5, 2, **ready)) == [("workers", 1, 2), ("segment-1", 1, 2)]


PLACES: list[Case[tuple[Any, str], str]] = [
    Case("the leader", (None, "0"), "leader"),
    Case("a worker", (None, "4"), "workers"),
    Case("the leader in a segment", (2, "0"), "leader"),
    Case("the last worker of the first segment", (2, "2"), "workers"),
    Case("the first of the second one", (2, "3"), "segment-1"),
    Case("the last worker", (2, "4"), "segment-1"),
    Case("outside of the segments", (excluded(2), "0"), "leader"),
    Case("the first segment then", (excluded(2), "2"), "segment-0"),
    Case("the second segment then", (excluded(2), "3"), "segment-1"),
    Case("a forged index", (2, "-1"), "workers"),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_the_sub_group_of_a_pod(case: Case[tuple[Any, str], str]) -> None:
    policy, index = case.given
    shapes = lws(5, policy).shapes
    assert shapes is not None

    assert subgroup_of(shapes[0], place(index)) == case.want


def place(index: str, group: str = "0") -> PodPlace:
    return lws_pod_place(
        {
            "leaderworkerset.sigs.k8s.io/worker-index": index,
            "leaderworkerset.sigs.k8s.io/group-index": group,
        }
    )


def test_a_pod_is_in_the_podgroup_of_its_group() -> None:
    planned = plan_podgroups(lws(2, replicas=3), "kai-scheduler")
    found = planned.podgroup_of("worker", place("1", "2").group)

    assert found is not None
    assert found.suffix == "group-2"
    assert planned.podgroup_of("worker", place("1", "7").group) is None


def test_a_set_is_evicted_by_its_pods() -> None:
    assert not lws(2).as_suspendable().is_managed_here


def test_fields_have_the_names_of_the_manifest() -> None:
    """A leader without a template of its own has that of the workers."""
    pods = "spec.replicatedJobs[{}].template.spec.template.spec"
    own = lws(3, groups={"leaderTemplate": template()})

    assert lws(3).own_path(pods.format(0)) == "spec.leaderWorkerTemplate.workerTemplate.spec"
    assert own.own_path(pods.format(0)) == "spec.leaderWorkerTemplate.leaderTemplate.spec"
    assert own.own_path(pods.format(1)) == "spec.leaderWorkerTemplate.workerTemplate.spec"
    count = "spec.replicatedJobs[1].template.spec.parallelism"
    assert own.own_path(count) == "spec.leaderWorkerTemplate.size"
