"""Nodes: why they take no pods, which taints count, what they have (rules 1, 13 and 21)."""

from typing import Any

import pytest

from scheduler.core.model.snapshot import NodeFault
from tests.support.case import Case, ids
from tests.support.state.objects import encode_objects, node, pod, signature_of


def _conditions(**conditions: str) -> list[dict[str, str]]:
    return [{"type": name, "status": status} for name, status in conditions.items()]


# spec, conditions → what is wrong
FAULTS = [
    Case("nothing is said", ({}, {}), NodeFault.NONE),
    Case("all is well", ({}, {"Ready": "True", "DiskPressure": "False"}), NodeFault.NONE),
    Case(
        "cordoned outranks not ready",
        ({"unschedulable": True}, {"Ready": "False"}),
        NodeFault.CORDONED,
    ),
    Case(
        "not ready outranks pressure",
        ({}, {"Ready": "False", "PIDPressure": "True"}),
        NodeFault.NOT_READY,
    ),
    Case("an unknown readiness is not ready", ({}, {"Ready": "Unknown"}), NodeFault.NOT_READY),
    Case(
        "pressure is a fault of a ready node",
        ({}, {"Ready": "True", "PIDPressure": "True"}),
        NodeFault.PRESSURE,
    ),
    Case(
        "pressure that is unknown counts as pressure",
        ({}, {"MemoryPressure": "Unknown"}),
        NodeFault.PRESSURE,
    ),
    Case(
        "a node without network is at fault",
        ({}, {"NetworkUnavailable": "True"}),
        NodeFault.NO_NETWORK,
    ),
    Case("another condition is no fault", ({}, {"KernelDeadlock": "True"}), NodeFault.NONE),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_faults(case: Case[tuple[dict[str, Any], dict[str, str]], NodeFault]) -> None:
    """Of several the one is reported that a person would look at first."""
    spec, conditions = case.given

    snapshot = encode_objects(node("a", spec=spec, conditions=_conditions(**conditions))).snapshot

    assert snapshot.nodes.fault[0] == case.want
    assert snapshot.total[2] == (8000 if case.want == NodeFault.NONE else 0)


def _taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    return {"key": key, "effect": effect, "value": value}


_ALL = {"operator": "Exists"}
# taints, tolerations → names of the taints that count, and those that are tolerated
TAINTS = [
    Case("none is tolerated", ([_taint("a")], []), (["a:NoSchedule"], [])),
    Case("a wish is no taint", ([_taint("a", "PreferNoSchedule")], []), ([], [])),
    Case("all of them", ([_taint("a", "NoExecute")], [_ALL]), (["a:NoExecute"], [0])),
    Case(
        "a key tolerates every value",
        ([_taint("a", value="1")], [{"key": "a", **_ALL}]),
        (["a=1:NoSchedule"], [0]),
    ),
    Case(
        "a value is tolerated alone",
        ([_taint("a", value="1")], [{"key": "a", "value": "1"}]),
        (["a=1:NoSchedule"], [0]),
    ),
    Case(
        "an empty value tolerates no other value",
        ([_taint("a", value="1")], [{"key": "a"}]),
        (["a=1:NoSchedule"], []),
    ),
    Case(
        "another effect is not tolerated",
        ([_taint("a")], [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]),
        (["a:NoSchedule"], []),
    ),
    Case("no key without Exists", ([_taint("a")], [{"value": ""}]), (["a:NoSchedule"], [])),
    Case(
        "an unknown operator tolerates nothing",
        ([_taint("a")], [{"key": "a", "operator": "Lt"}]),
        (["a:NoSchedule"], []),
    ),
]


@pytest.mark.parametrize("case", TAINTS, ids=ids)
def test_taints(case: Case[tuple[list[Any], list[Any]], tuple[list[str], list[int]]]) -> None:
    """Only taints that keep pods out have a column."""
    taints, tolerations = case.given

    encoded = encode_objects(node("a", spec={"taints": taints}), pod("p", tolerations=tolerations))

    names = list(encoded.snapshot.nodes.taint_names)
    assert (names, sorted(signature_of(encoded, "p").tolerated_taints)) == case.want


@pytest.mark.parametrize(
    ("is_cordoned", "names"),
    [(True, ()), (False, ("node.kubernetes.io/unschedulable:NoSchedule",))],
)
def test_a_cordon_counts_once(is_cordoned: bool, names: tuple[str, ...]) -> None:
    """Kubernetes writes it as a field and as a taint; the taint counts only alone."""
    spec = {"unschedulable": is_cordoned, "taints": [_taint("node.kubernetes.io/unschedulable")]}

    assert encode_objects(node("a", spec=spec)).snapshot.nodes.taint_names == names


def test_rows_are_in_the_order_of_names() -> None:
    """And each has its own taints."""
    nodes = encode_objects(node("b", spec={"taints": [_taint("x")]}), node("a")).snapshot.nodes

    assert nodes.names == ("a", "b")
    assert nodes.taints.tolist() == [[False], [True]]


def test_a_node_that_cannot_be_read_is_left_out() -> None:
    """There is a warning, and other nodes are not affected."""
    encoded = encode_objects(node("a", has={"cpu": "many"}), node("b"), pod("p", node="a"))

    assert encoded.snapshot.nodes.names == ("b",)
    assert [warning.object_key.name for warning in encoded.warnings] == ["a"]
    assert encoded.warnings[0].message.startswith("node a: status.allocatable[cpu]: ")
    assert encoded.snapshot.pods.node.tolist() == [-1]


def test_the_total_is_what_others_leave_on_nodes_that_can_be_used() -> None:
    """Pods of other schedulers on a cordoned node take nothing from it, nor do our own helpers.

    These are known by their namespace: any user may write their label.
    """
    scaling = {"app": "scaling-pod"}
    foreign = {"schedulerName": "default-scheduler"}
    encoded = encode_objects(
        node("a", gpu=8),
        node("b", gpu=8, spec={"unschedulable": True}),
        pod("ours", node="a"),
        pod("theirs", node="a", **foreign),
        pod("over", node="a", phase="Succeeded", **foreign),
        pod("elsewhere", node="b", **foreign),
        pod("scaling", node="a", labels=scaling, meta={"namespace": "kai-scale-adjust"}, **foreign),
        pod("says so", node="a", labels=scaling, **foreign),
    )

    assert encoded.snapshot.total == (64000, 256 * 2**30, 6000)
