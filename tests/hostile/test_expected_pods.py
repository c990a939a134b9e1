"""Pods that do not exist yet cost a tenant one line each: what a number says must cost no plan.

Before there was a bound one JobSet with 300 replicas of 100,000 later pods made a plan take
10 seconds and 958 MiB.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.forged_jobsets import jobset, marked, rjob, trainjob, waiting
from tests.hostile.objects import TENANT, VICTIMS, cluster, node, pod, pod_group
from trainer_kai.api.bounds import MOST_CONSTRAINED, MOST_EXPECTED
from trainer_kai.api.names import ANTICIPATED, SUBGROUP
from trainer_kai.podgrouper.plan import ObservedState, plan
from trainer_kai.policy.podgroups.manifests import GroupingMode, GroupingRules
from trainer_kai.policy.workloads.jobset import jobset_workload

Obj = dict[str, Any]
MOST_INT = 2**31 - 1
SCHEDULER = "kai-scheduler"
HOST, ZONE = "kubernetes.io/hostname", "zone"
MUST = "requiredDuringSchedulingIgnoredDuringExecution"


def _near(kind: str, key: str, labels: Obj) -> Obj:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {kind: {MUST: [term]}}}


def _spread(name: str) -> Obj:
    selector = {"matchLabels": {"a": name}}
    output = {"maxSkew": 2_000_000, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**output, "labelSelector": selector}]}


# what pods with a label of their own say of others
RELATIONS: dict[str, Callable[[str], Obj]] = {
    "plain": lambda _: {},
    "spread": _spread,
    "apart": lambda name: _near("podAntiAffinity", HOST, {"none": name}),
    "near": lambda name: _near("podAffinity", ZONE, {"a": name}),
}


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
def test_a_jobset_that_expects_too_many_gets_no_group(
    simulate: SimulateFixture, replicas: int
) -> None:
    """The victims start; the tenant is told field, number and what would be right."""
    hostile = jobset("greedy", waiting(replicas, 100_000))

    measured = simulate([*cluster(), *gangs(), hostile])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    steps = plan(
        jobset_workload(marked(waiting(replicas, 100_000))),
        ObservedState({}),
        (),
        GroupingRules("bundled", SCHEDULER, ""),
    )
    assert steps.apply == ()
    [report] = [str(it) for it in steps.podgroup_plan.findings if it.blocks]
    assert report == (
        f"spec.replicatedJobs: later would have {replicas * 100_000} expected pods (they start "
        "after others: dependsOn with status Ready), and the maximum is 100000. Lower replicas "
        "or parallelism"
    )


def test_fifty_jobsets_at_the_bound_cost_the_victims_nothing(simulate: SimulateFixture) -> None:
    """Each expects as many as it may, and asks for something else than the others."""
    hostile = [
        jobset(f"greedy-{n}", waiting(100, MOST_EXPECTED // 100, f"{n + 1}m")) for n in range(50)
    ]

    measured = simulate([*cluster(), *gangs(), *hostile])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    assert len([key for key in measured.waiting if key.startswith(TENANT)]) == 50


def bare() -> list[Obj]:
    """Return 200 nodes in one zone, with 22,000 places for pods."""
    nodes = [node(f"bare-{n}", gpus=0) for n in range(200)]
    for one in nodes:
        one["metadata"]["labels"][ZONE] = "z"
    return nodes


def related(name: str, says: str, pods: int, cpu: str = "1m") -> list[Obj]:
    """Return a first pod, and so many behind it that say something of other pods."""
    first, later = waiting(1, pods, cpu)
    template = later["template"]["spec"]["template"]
    template["metadata"]["labels"]["a"] = name
    template["spec"] |= RELATIONS[says](name)
    return [first, later]


@pytest.mark.parametrize("says", RELATIONS)
def test_nor_do_they_where_there_is_room_for_many(simulate: SimulateFixture, says: str) -> None:
    """Where 22,000 pods have room, each attempt would place so many before it fails."""
    made = {f"greedy-{n}": related(f"b{n}", says, MOST_EXPECTED, f"{n + 1}m") for n in range(20)}
    hostile = [jobset(name, jobs, trainjob(name)) for name, jobs in made.items()]

    measured = simulate([*cluster(), *bare(), *gangs(), *hostile])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    assert len([key for key in measured.waiting if key.startswith(TENANT)]) == 20
    for jobs in made.values() if says != "plain" else ():
        workload, rules = jobset_workload(marked(jobs)), GroupingRules("bundled", SCHEDULER, "")
        steps = plan(workload, ObservedState({}), (), rules)
        assert steps.apply == ()
        [report] = [str(it) for it in steps.podgroup_plan.findings if it.blocks]
        assert report == (
            f"spec.replicatedJobs: later would have {MOST_EXPECTED} expected pods with "
            "affinity, spread or ports (they start after others: dependsOn with status "
            f"Ready), and the maximum is {MOST_CONSTRAINED}. Lower replicas or parallelism"
        )


@pytest.mark.parametrize("says", RELATIONS)
def test_pods_that_mind_each_other_are_placed_in_a_row(
    simulate: SimulateFixture, says: str
) -> None:
    """As many as may be of each; some JobSets have room for all, and the others are told."""
    hostile = [
        jobset(f"greedy-{n}", related(f"b{n}", says, MOST_CONSTRAINED, f"{n + 1}m"))
        for n in range(8)
    ]

    measured = simulate([*cluster(), *bare(), *gangs(), *hostile])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8 + [TENANT] * 4
    waits = [row for key, row in measured.waiting.items() if key.startswith(TENANT)]
    assert [row["reason"] for row in waits] == ["NoCapacity"] * 4


def test_what_others_say_of_them_does_not_make_them_slow(simulate: SimulateFixture) -> None:
    """Pods that say nothing themselves are kept away from a pod that minds them."""
    foe = pod(TENANT, "foe", 0)
    foe["spec"] |= RELATIONS["apart"]("foe")
    terms = foe["spec"]["affinity"]["podAntiAffinity"][MUST]
    terms[0]["labelSelector"] = {"matchLabels": {"a": "b"}}

    hostile = jobset("greedy", related("b", "plain", MOST_EXPECTED))
    measured = simulate([*cluster(), *bare(), *gangs(), foe, hostile])

    assert bound(measured)[:16] == ["blue"] * 8 + ["red"] * 8
    [report] = [row for key, row in measured.waiting.items() if "greedy" in key]
    assert report["reason"] == "NoCapacity"


def expecting(replicas: int, count: int, after: int = 0) -> list[Obj]:
    """Return a PodGroup of any version, or by hand, and its first pod."""
    later = {"subGroupPrefix": "later-replica-", "replicas": replicas, "count": count}
    output: Obj = {"later": [{**later, "requests": {"cpu": "1"}}]}
    if after:
        before = {"replicatedJob": "a", "status": "Ready", "group": "a", "subGroupPrefix": "a-"}
        output["after"] = [{**before, "replicas": after, "count": 0}]
    podsets = [
        {"name": f"later-replica-{n}", "minMember": count} for n in range(min(replicas, 300))
    ]
    group = pod_group(TENANT, "by-hand")
    group["metadata"]["annotations"] = {ANTICIPATED: json.dumps(output)}
    subgroups = [{"name": "first", "minMember": 1}, *podsets]
    group["spec"] = {"queue": TENANT, "minSubGroup": len(subgroups), "subGroups": subgroups}
    first = pod(TENANT, "first", 0, "by-hand")
    first["metadata"]["labels"][SUBGROUP] = "first"
    first["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return [group, first]


@pytest.mark.parametrize(
    ("objects", "report"),
    [
        (expecting(300, 100_000), "later: 30000000 expected pods, and the maximum"),
        (expecting(300, MOST_INT), f"later: {300 * MOST_INT} expected pods, and the maximum"),
        (expecting(MOST_INT, 1), f"later: {MOST_INT} replicas, and the maximum is 3000"),
        (expecting(1, 1, after=MOST_INT), f"after: {MOST_INT} replicas, and the maximum is 3000"),
    ],
    ids=["many", "as many as can be", "replicas", "replicas of an earlier stage"],
)
def test_a_group_that_says_too_much_is_misconfigured(
    simulate: SimulateFixture, objects: list[Obj], report: str
) -> None:
    """Nothing of it is expanded, and the annotation is named."""
    measured = simulate([*cluster(), *gangs(), *objects])

    assert bound(measured) == ["blue"] * 8 + ["red"] * 8
    reason = measured.waiting[f"{TENANT}/by-hand"]
    assert reason["reason"] == "Misconfigured"
    assert f"metadata.annotations[{ANTICIPATED}]: {report}" in reason["message"]


@pytest.mark.parametrize("mode", ["bundled", "external"])
def test_a_stage_of_too_many_jobs_is_refused_in_both_modes(mode: GroupingMode) -> None:
    """External mode went through all replicas one by one, and died of 2^31 - 1."""
    steps = plan(
        jobset_workload(marked([rjob("node", MOST_INT, 1)])),
        ObservedState({}),
        (),
        GroupingRules(mode, SCHEDULER, ""),
    )

    assert steps.apply == ()
    [report] = [str(it) for it in steps.podgroup_plan.findings if it.blocks]
    assert report.startswith("spec.replicatedJobs: the PodGroup of node would")
    assert "the maximum is 3000" in report
