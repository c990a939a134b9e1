"""Pods that do not exist yet cost a tenant one line each: what a number says must cost no plan.

Before there was a bound one JobSet with 300 replicas of 100,000 later pods made a plan take
10 seconds and 958 MiB.
"""

import json
from typing import Any

import pytest

from tests.hostile.conftest import Simulate
from tests.hostile.jobsets import jobset, marked, rjob, waiting
from tests.hostile.teams import TENANT, VICTIMS, cluster, node, pod, pod_group
from trainer_kai.api.names import ANTICIPATED, SUBGROUP
from trainer_kai.podgrouper.plan import Known, plan
from trainer_kai.policy.groups import Mode, Rules
from trainer_kai.policy.units import MOST_EXPECTED

Obj = dict[str, Any]
MOST_INT = 2**31 - 1
SCHEDULER = "kai-scheduler"


def gangs() -> list[Obj]:
    """Return a gang of eight for each victim, which take the sixteen GPUs together."""
    return [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]


def bound(measured: Any) -> list[str]:
    """Return the namespaces of the pods that the first cycle binds."""
    return sorted(name.partition("/")[0] for name in measured.binds)


@pytest.mark.parametrize("replicas", [300, 2990])
def test_a_jobset_that_expects_too_many_gets_no_group(simulate: Simulate, replicas: int) -> None:
    """The victims start; the tenant is told field, number and what would be right."""
    hostile = jobset("greedy", waiting(replicas, 100_000))

    measured = simulate([*cluster(), *gangs(), hostile])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    steps = plan(marked(waiting(replicas, 100_000)), Known({}), (), Rules("bundled", SCHEDULER, ""))
    assert steps.apply == ()
    [told] = [str(it) for it in steps.outline.findings if it.blocks]
    assert told == (
        f"spec.replicatedJobs: later would have {replicas * 100_000} pods that come later "
        "(dependsOn with status Ready), and a group expects 100000 at most; "
        "lower replicas or parallelism"
    )


def test_fifty_jobsets_at_the_bound_cost_the_victims_nothing(simulate: Simulate) -> None:
    """Each expects as many as it may, and asks for something else than the others."""
    hostile = [
        jobset(f"greedy-{n}", waiting(100, MOST_EXPECTED // 100, f"{n + 1}m")) for n in range(50)
    ]

    measured = simulate([*cluster(), *gangs(), *hostile])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    assert len([key for key in measured.waiting if key.startswith(TENANT)]) == 50


def test_nor_do_they_where_there_is_room_for_many(simulate: Simulate) -> None:
    """Where 22,000 pods have room, each attempt would place so many before it fails."""
    hostile = [jobset(f"greedy-{n}", waiting(1, MOST_EXPECTED, f"{n + 1}m")) for n in range(20)]
    bare = [node(f"bare-{n}", gpus=0) for n in range(200)]

    measured = simulate([*cluster(), *bare, *gangs(), *hostile])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    assert len([key for key in measured.waiting if key.startswith(TENANT)]) == 20


def expecting(replicas: int, count: int, after: int = 0) -> list[Obj]:
    """Return a PodGroup of any version, or by hand, and its first pod."""
    later = {"subGroupPrefix": "later-replica-", "replicas": replicas, "count": count}
    said: Obj = {"later": [{**later, "requests": {"cpu": "1"}}]}
    if after:
        before = {"replicatedJob": "a", "status": "Ready", "group": "a", "subGroupPrefix": "a-"}
        said["after"] = [{**before, "replicas": after, "count": 0}]
    leaves = [{"name": f"later-replica-{n}", "minMember": count} for n in range(min(replicas, 300))]
    group = pod_group(TENANT, "by-hand")
    group["metadata"]["annotations"] = {ANTICIPATED: json.dumps(said)}
    subs = [{"name": "first", "minMember": 1}, *leaves]
    group["spec"] = {"queue": TENANT, "minSubGroup": len(subs), "subGroups": subs}
    first = pod(TENANT, "first", 0, "by-hand")
    first["metadata"]["labels"][SUBGROUP] = "first"
    first["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return [group, first]


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        (expecting(300, 100_000), "later: 30000000 pods are expected, and 100000"),
        (expecting(300, MOST_INT), f"later: {300 * MOST_INT} pods are expected, and 100000"),
        (expecting(MOST_INT, 1), f"later: {MOST_INT} replicas, and 3000 are the most"),
        (expecting(1, 1, after=MOST_INT), f"after: {MOST_INT} replicas, and 3000 are the most"),
    ],
    ids=["many", "as many as can be", "replicas", "replicas of an earlier stage"],
)
def test_a_group_that_says_too_much_is_misconfigured(
    simulate: Simulate, objects: list[Obj], told: str
) -> None:
    """Nothing of it is expanded, and the annotation is named."""
    measured = simulate([*cluster(), *gangs(), *objects])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    verdict = measured.waiting[f"{TENANT}/by-hand"]
    assert verdict["reason"] == "Misconfigured"
    assert f"metadata.annotations[{ANTICIPATED}]: {told}" in verdict["message"]


@pytest.mark.parametrize("mode", ["bundled", "external"])
def test_a_stage_of_too_many_jobs_is_refused_in_both_modes(mode: Mode) -> None:
    """External mode went through all replicas one by one, and died of 2^31 - 1."""
    steps = plan(marked([rjob("node", MOST_INT, 1)]), Known({}), (), Rules(mode, SCHEDULER, ""))

    assert steps.apply == ()
    [told] = [str(it) for it in steps.outline.findings if it.blocks]
    assert told.startswith("spec.replicatedJobs: node would")
    assert "3000 at most" in told
