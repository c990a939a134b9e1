"""What a PodGroup may say: the rules of KAI's webhook, kept by the schema."""

import random
from typing import Any, Final

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import Obj
from e2e.fixtures.install import PODGROUPS
from e2e.install.schema_check import (
    SCHEMA,
    RuleCase,
    check_case,
    is_refused,
    pod_group,
    row_id,
    server_message,
)

BOTH_MINIMA: Final = "minMember and minSubGroup cannot both be set"
INNER_MEMBER: Final = "a sub-group that has sub-groups cannot have minMember"


def subgroup(name: str, **fields: Any) -> Obj:
    """Return a sub-group that counts pods."""
    return {"name": name, "minMember": 1, **fields}


def groups(*sub_groups: Obj, **fields: Any) -> Obj:
    """Return a PodGroup of some sub-groups."""
    return pod_group({"subGroups": list(sub_groups), **fields})


def tree(inner: int, podsets: int) -> list[Obj]:
    """Return so many sub-groups at the top, and so many below them."""
    tops = [{"name": f"job-{i}", "minSubGroup": 1} for i in range(inner)]
    return tops + [subgroup(f"leaf-{i}", parent=f"job-{i % inner}") for i in range(podsets)]


def chain(length: int, top: str = "") -> list[Obj]:
    """Return sub-groups of which each is above the one before."""
    links: list[Obj] = [{"name": f"x{i}", "parent": f"x{i + 1}"} for i in range(length)]
    links[0]["minMember"] = 1
    links[-1]["parent"] = top
    return links


FINE: Final = [
    RuleCase("nothing has to be said", pod_group()),
    RuleCase("a group may ask for no gang", pod_group({"minMember": 0})),
    RuleCase("null is as if absent", pod_group({"minMember": None, "minSubGroup": 0})),
    RuleCase("a negative delay is none", pod_group({"preemptionDelay": "-5m"})),
    RuleCase("a negative grace is for ever", pod_group({"stalenessGracePeriod": "-1s"})),
    RuleCase("a duration may have parts", pod_group({"stalenessGracePeriod": "1h30.5m"})),
    RuleCase("KAI's fields are known", pod_group({
        "queue": "team-a", "priorityClassName": "train", "preemptibility": "non-preemptible",
        "markUnschedulable": False, "schedulingBackoff": 1, "preemptionDelay": "1m",
        "topologyConstraint": {"topology": "racks", "requiredTopologyLevel": "rack"},
    })),
    RuleCase("KAI's tree of an MPI job", groups(
        {"name": "node", "minSubGroup": 1}, subgroup("node-replica-0", parent="node", minMember=3),
        {"name": "launcher", "minSubGroup": 1}, subgroup("launcher-replica-0", parent="launcher"),
        minSubGroup=2,
    )),
    RuleCase("a minMember above sub-groups is ignored", groups(subgroup("a"), minMember=4)),
    RuleCase("pods may all be elastic", groups(subgroup("a", minMember=0))),
    RuleCase("a child may stand before its "
"parent", groups(subgroup("a", parent="b"), {"name": "b"})),
    RuleCase("more may be needed than there are", groups(subgroup("a"), minSubGroup=7)),
    RuleCase("a close sub-group", groups(subgroup("a", topologyConstraint={"topology": "racks"}))),
]  # fmt: skip
REFUSED: Final = [
    RuleCase("pods and sub-groups are counted", pod_group({"minMember": 1, "minSubGroup": 1}),
        BOTH_MINIMA),
    RuleCase("a sub-group counts both", groups(
        {"name": "a", "minMember": 1, "minSubGroup": 1}, subgroup("b", parent="a")),
        f"spec.subGroups[0].minMember: Invalid value: {BOTH_MINIMA}"),
    RuleCase("less than none", pod_group({"minMember": -1}), "greater than or equal to 0"),
    RuleCase("fewer sub-groups than none", pod_group({"minSubGroup": -1}),
        "greater than or equal to 0"),
    RuleCase("one name twice", groups(subgroup("a"), subgroup("b"), subgroup("a")),
        "key a already exists evaluating rule: names of sub-groups must be unique"),
    RuleCase("a parent that is not there", groups(subgroup("a", parent="b")),
        'there is no sub-group "b": a parent must be the name of another sub-group'),
    RuleCase("a sub-group above itself", groups({"name": "a", "parent": "a"}),
        "the parents of sub-groups form a cycle"),
    RuleCase("three above each other", groups(
        {"name": "a", "parent": "b"}, {"name": "b", "parent": "c"}, {"name": "c", "parent": "a"}),
        "each chain of parents must end at a sub-group without parent"),
    RuleCase("pods that nobody counts", groups(subgroup("a"), {"name": "b"}),
        'sub-group "b" has no sub-groups, so it needs minMember'),
    RuleCase("null counts nothing", groups({"name": "a", "minMember": None}),
        'sub-group "a" has no sub-groups, so it needs minMember'),
    RuleCase("sub-groups counted where there are "
"none", groups({"name": "a", "minSubGroup": 1}),
        'sub-group "a" has no sub-groups, so it cannot have minSubGroup'),
    RuleCase("pods counted above "
"sub-groups", groups(subgroup("a"), subgroup("b", parent="a")),
        INNER_MEMBER, SCHEMA),
    RuleCase("a name that no label can hold", groups(subgroup("A")), "should match"),
    RuleCase("no name", groups({"minMember": 1}), "subGroups[0].name: Required value"),
    RuleCase("a choice that is none", pod_group({"preemptibility": "maybe"}),
        'supported values: "preemptible", "non-preemptible"'),
    RuleCase("a delay in words, which KAI "
"admits", pod_group({"preemptionDelay": "5 minutes"})),
    RuleCase("a grace without a unit", pod_group({"stalenessGracePeriod": "5"})),
]  # fmt: skip
LARGE: Final = [
    RuleCase("the largest tree", groups(*tree(100, 2900))),
    RuleCase("a tree too wide to be asked everything", groups(*tree(1500, 1500))),
    RuleCase("the deepest tree", groups(*chain(3000))),
    RuleCase("the longest cycle", groups(*chain(3000, top="x0")),
        "the parents of sub-groups form a cycle"),
    RuleCase("one fault among a thousand", groups(*tree(400, 599), {"name": "bare"}),
        'sub-group "bare" has no sub-groups, so it needs minMember'),
    RuleCase("one too many", groups(*tree(1, 3000)), "must have at most 3000 items", SCHEMA),
]  # fmt: skip


@pytest.mark.parametrize("row", [*FINE, *REFUSED, *LARGE], ids=row_id)
async def test_the_rules_of_a_group(row: RuleCase, installed_cluster: Cluster) -> None:
    """The API server says what is wrong and what would be right; the product agrees."""
    await check_case(installed_cluster, row)


async def test_schema_and_product_agree_on_any_small_tree(installed_cluster: Cluster) -> None:
    """Whatever is put together by lot, schema and product refuse the same."""
    lot = random.Random(20)  # noqa: S311 the same trees each time
    reasons = set()
    for _ in range(300):
        obj = _by_lot(lot)
        refused = bool(await server_message(installed_cluster, obj))
        assert refused == (is_refused(obj) or _has_inner_member(obj)), obj
        reasons.add(refused)
    assert reasons == {True, False}


async def test_an_older_group_can_still_be_changed(
    installed_cluster: Cluster, namespace: str
) -> None:
    """What is refused at creation is taken of an update: KAI's older objects have it."""
    obj = groups({"name": "a"}, subgroup("b", parent="a"))
    obj["metadata"]["namespace"] = namespace
    path = PODGROUPS.path(namespace)
    await installed_cluster.api.request("POST", path, obj)
    old = {"spec": {"subGroups": [subgroup("a"), subgroup("b", parent="a")]}}

    changed = await installed_cluster.api.merge(PODGROUPS, namespace, "group", old)

    assert changed["spec"]["subGroups"] == old["spec"]["subGroups"]
    with pytest.raises(ApiError, match=INNER_MEMBER):
        await installed_cluster.api.request(
            "POST", path, {**obj, **old, "metadata": {"name": "new"}}
        )


async def test_what_a_scheduler_says_is_stored(installed_cluster: Cluster, namespace: str) -> None:
    """The whole status of KAI is known, field by field."""
    obj = pod_group()
    obj["metadata"]["namespace"] = namespace
    await installed_cluster.api.request("POST", PODGROUPS.path(namespace), obj)
    amounts = {"nvidia.com/gpu": "500m", "cpu": 3}
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "resourcesStatus": {
            "allocated": amounts, "allocatedNonPreemptible": amounts, "requested": amounts,
        },
        "schedulingConditions": [{
            "type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True",
            "reason": "Unschedulable", "message": "no room", "transitionID": "7",
            "lastTransitionTime": "2026-11-21T10:00:00Z",
            "reasons": [{"reason": "OverLimit", "message": "more than 8", "details": {
                "queueDetails": {"name": "team-a", **dict.fromkeys((
                    "queueRequestedResources", "queueDeservedResources",
                    "queueAllocatedResources", "queueAllocatedNonPreemptibleResources",
                    "queueResourceLimits", "podGroupRequestedResources",
                    "podGroupRequestedNonPreemptibleResources",
                ), amounts)},
            }}],
        }],
    }  # fmt: skip

    stored = await installed_cluster.api.merge(
        PODGROUPS, namespace, "group", {"status": status}, subresource="status"
    )

    assert stored["status"] == status


def _by_lot(lot: random.Random) -> Obj:
    names = lot.choices("abcd", k=lot.randint(1, 4))
    if lot.random() < 0.8:
        names = sorted(set(names))
    sub_groups = []
    for name in names:
        fields: Obj = {"name": name, "parent": lot.choice([*names, "", "", "z", None])}
        for field, chance in (("minMember", 0.7), ("minSubGroup", 0.3)):
            if lot.random() < chance:
                fields[field] = lot.choice([None, 0, 1, 1, 2, -1])
        sub_groups.append(fields)
    return groups(*sub_groups, **({"minMember": 2} if lot.random() < 0.3 else {}))


def _has_inner_member(obj: Obj) -> bool:
    sub_groups = obj["spec"]["subGroups"]
    parents = {group["parent"] for group in sub_groups}
    return any(
        group["name"] in parents and group.get("minMember") is not None for group in sub_groups
    )
