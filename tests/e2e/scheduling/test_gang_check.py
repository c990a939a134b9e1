"""The gang check reports the histories in which a started PodGroup lacks room for the rest."""

from typing import TypeAlias

import pytest

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import JOBSETS, NODES, PODS, Obj, Resource
from e2e.cluster.timeline import Key, Moment
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP, SUBGROUP
from e2e.scheduling.gang_check import check_gangs
from tests.support.case import Case, ids

Change: TypeAlias = tuple[Resource, Obj]

_RESERVED = "trainer-kai.dev/reserved"


def node(gpus: int) -> Change:
    """Return the one node of these tests."""
    return NODES, {"metadata": {"name": "node"}, "status": {"allocatable": {GPU: str(gpus)}}}


def jobset(*, suspend: bool = False) -> Change:
    """Return the one JobSet."""
    return JOBSETS, {"metadata": {"name": "job"}, "spec": {"suspend": suspend}}


def group(members: int, reserved: str = "{}") -> Change:
    """Return its PodGroup, of one PodSet."""
    annotations = {_RESERVED: reserved}
    owners = [{"name": "job"}]
    metadata = {"name": "pg", "annotations": annotations, "ownerReferences": owners}
    return PODGROUPS, {
        "metadata": metadata,
        "spec": {"subGroups": [{"name": "leaf", "minMember": members}]},
    }


def pod(name: str, at: str = "", *, going: bool = False, of: str = "pg") -> Change:
    """Return a pod of this group, or of another, which asks for one GPU."""
    metadata: Obj = {"name": name, "uid": name}
    metadata |= {"annotations": {PODGROUP: of}, "labels": {SUBGROUP: "leaf"}}
    metadata |= {"deletionTimestamp": "now"} if going else {}
    spec: Obj = {"containers": [{"resources": {"limits": {GPU: "1"}}}]}
    spec |= {"nodeName": at} if at else {}
    return PODS, {"metadata": metadata, "spec": spec, "status": {}}


_NO_RESERVATION = "s: 1 GPUs of no node at all are spoken for, while pg are not whole"
_FULL = "s: 2 GPUs of node are spoken for, while pg are not whole"
_ONE_RESERVED = '{"leaf": {"nodes": {"node": 1}}}'

CASES: list[Case[tuple[Change, ...], list[str]]] = [
    Case(
        "a pod that waits has room",
        (node(2), jobset(), group(2), pod("a"), pod("b"), pod("a", "node"), pod("b", "node")),
        [],
    ),
    Case(
        "pods that came before their group have come",
        (node(2), jobset(), pod("a"), pod("b"), group(2), pod("a", "node"), pod("b", "node")),
        [],
    ),
    Case(
        "the second has no room beside the first",
        (node(1), jobset(), group(2), pod("a"), pod("b"), pod("a", "node"), pod("b", "node")),
        [f"6.000 {_FULL}"],
    ),
    Case(
        "one waits that never gets a node",
        (node(2), jobset(), group(2), pod("a"), pod("b"), pod("a", "node")),
        [f"6.000 {_NO_RESERVATION}"],
    ),
    Case(
        "one is to come, and nothing is held for it",
        (node(2), jobset(), group(2), pod("a"), pod("a", "node")),
        [f"5.000 {_NO_RESERVATION}"],
    ),
    Case(
        "one is to come, and its place is held",
        (node(2), jobset(), group(2, _ONE_RESERVED), pod("a"), pod("a", "node")),
        [],
    ),
    Case(
        "a place is held where there is no room",
        (node(1), jobset(), group(2, _ONE_RESERVED), pod("a"), pod("a", "node")),
        [f"5.000 {_FULL}"],
    ),
    Case(
        "a suspended TrainJob lacks nothing",
        (node(2), jobset(suspend=True), group(2), pod("a"), pod("a", "node")),
        [],
    ),
    Case(
        "who is resumed waits for pods that went before",
        (
            *(node(2), jobset(), group(2), pod("a"), pod("b")),
            *(jobset(suspend=True), pod("a", going=True), pod("b", going=True)),
            *(jobset(), pod("c"), pod("c", "node")),
        ),
        [f"11.000 {_NO_RESERVATION}"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_faults(case: Case[tuple[Change, ...], list[str]]) -> None:
    """A fault names the moment, the node and the PodGroup, or nothing."""
    assert check_gangs([_moment(at, it) for at, it in enumerate(case.given, 1)]).faults == case.want


def test_a_bind_without_an_answer() -> None:
    """Its pod is not judged where it waits if it gets another node; all others are."""
    started = (node(1), jobset(), group(2), pod("a"), pod("b"), pod("a", "node"))
    history = [_moment(at, it) for at, it in enumerate((*started, pod("b", "node")), 1)]
    assert check_gangs(history).faults == [f"6.000 {_FULL}"]
    assert check_gangs(history, {"a": "other"}).faults == [f"6.000 {_FULL}"]
    assert check_gangs(history, {"b": "node"}).faults == [f"6.000 {_FULL}"]
    assert check_gangs(history, {"b": "other"}).faults == []


def test_binds_that_pass_a_pod_are_counted() -> None:
    """Those of other PodGroups, from the first pod that is bound to the last."""
    begun = (node(4), jobset(), group(2), pod("a"), pod("b"), pod("x", "node", of="other"))
    passed = (pod("a", "node"), pod("y", "node", of="other"), pod("y", "node", of="other"))
    changes = (*begun, *passed, pod("b", "node"), pod("z", "node", of="other"))
    seen = check_gangs([_moment(at, it) for at, it in enumerate(changes, 1)])
    assert (seen.partly, seen.most_passed) == (3, 1)


def _moment(at: int, change: Change) -> Moment:
    resource, obj = change
    return Moment(float(at), at, "MODIFIED", Key(resource, "", obj["metadata"]["name"]), obj)
