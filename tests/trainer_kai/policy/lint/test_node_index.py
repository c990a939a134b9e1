"""The sets of nodes say the same as a look at each node, however they came to be."""

from random import Random
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.instruction_count import count_instructions
from tests.trainer_kai.policy.lint.cluster import decode_spec, node, pod_spec
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.pod import PodSpec
from trainer_kai.policy.lint.node_index import NodeIndex

TAINTS = ("a=1:NoSchedule", "b=:NoExecute", "c=1:PreferNoSchedule")


def any_node(chance: Random, name: str) -> Node:
    taints = [taint for taint in TAINTS if chance.random() < 0.3]
    labels: Any = {key: chance.choice("12") for key in ("x", "y") if chance.random() < 0.7}
    return node(name, chance.choice([0, 4, 8]), *taints, **labels)


def answers(nodes: NodeIndex, pod: PodSpec) -> object:
    """Return what can be asked, without the numbers that nodes happen to have."""
    sizes = sorted((sorted(has.items()), of.bit_count()) for has, of in nodes.by_allocatable())
    domains = sorted(one.bit_count() for one in nodes.domains(("x", "y"), nodes.all))
    counts = (
        nodes.all.bit_count(),
        nodes.eligible_for(pod).bit_count(),
        nodes.selected_by(pod).bit_count(),
    )
    return sizes, domains, counts, nodes.label_values("x"), nodes.taints(nodes.all)


@pytest.mark.parametrize("seed", range(20))
def test_nodes_put_one_by_one_are_those_put_at_once(seed: int) -> None:
    """Nodes come, change and go, and their numbers are used again."""
    chance = Random(seed)
    stored: dict[str, Node] = {}
    nodes = NodeIndex()
    pod = decode_spec(PodSpec, pod_spec(nodeSelector={"x": "1"}, tolerations=[{"key": "a"}]))
    for _ in range(60):
        name = f"n{chance.randrange(12)}"
        if chance.random() < 0.3:
            stored.pop(name, None)
            nodes.drop(name)
        else:
            stored[name] = any_node(chance, name)
            nodes.put(stored[name])

    assert answers(nodes, pod) == answers(NodeIndex(stored.values()), pod)


def test_a_node_that_cannot_be_read_is_none() -> None:
    """It is one again when it can."""
    broken = decode_spec(
        Node, {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "many"}}}
    )
    nodes = NodeIndex([node("n")])
    nodes.put(broken)
    unreadable = nodes.all
    nodes.put(node("n"))

    assert (unreadable, nodes.all.bit_count()) == (0, 1)


def test_a_cordon_passes() -> None:
    """So does what a node says of its state by taints."""
    cordoned = decode_spec(
        Node,
        {
            "metadata": {"name": "n"},
            "spec": {
                "unschedulable": True,
                "taints": [
                    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                ],
            },
        },
    )

    assert NodeIndex([cordoned]).eligible_for(decode_spec(PodSpec, pod_spec())) == 1


SIZED = NodeIndex([node("n1", size="4"), node("n2", size="8"), node("n3", size="many"), node("n4")])
# an expression about the label size, and the names of the nodes that it leaves
EXPRESSIONS: list[Case[dict[str, Any], str]] = [
    Case("above a number", {"operator": "Gt", "values": ["4"]}, "n2"),
    Case("below a number", {"operator": "Lt", "values": ["8"]}, "n1"),
    Case("not one of them", {"operator": "NotIn", "values": ["4", "8"]}, "n3 n4"),
    Case("any", {"operator": "Exists"}, "n1 n2 n3"),
    Case("none", {"operator": "DoesNotExist"}, "n4"),
    Case("an unknown operator", {"operator": "Near", "values": ["4"]}, ""),
]


def selecting(**term: Any) -> PodSpec:
    required = {"nodeSelectorTerms": [term]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    pod: PodSpec = decode_spec(PodSpec, pod_spec(affinity={"nodeAffinity": {key: required}}))
    return pod


def selected(nodes: NodeIndex, pod: PodSpec) -> str:
    found = nodes.selected_by(pod)
    return " ".join(f"n{i + 1}" for i in range(4) if found >> i & 1)


@pytest.mark.parametrize("case", EXPRESSIONS, ids=ids)
def test_expressions_count_as_for_the_scheduler(case: Case[dict[str, Any], str]) -> None:
    pod = selecting(matchExpressions=[{"key": "size", **case.given}])

    assert selected(SIZED, pod) == case.want


def test_names_are_selected_and_excluded() -> None:
    field = {"key": "metadata.name", "values": ["n1", "n4"]}

    assert selected(SIZED, selecting(matchFields=[{**field, "operator": "In"}])) == "n1 n4"
    assert selected(SIZED, selecting(matchFields=[{**field, "operator": "NotIn"}])) == "n2 n3"
    assert selected(SIZED, selecting(matchFields=[{**field, "operator": "Exists"}])) == ""


def test_many_values_are_not_compared_one_by_one() -> None:
    """More nodes than those are no fault: the results are upper bounds."""
    many = NodeIndex([*(node(f"n{i}", size=str(i)) for i in range(65)), node("other")])
    pod = selecting(matchExpressions=[{"key": "size", "operator": "Gt", "values": ["60"]}])

    assert many.selected_by(pod).bit_count() == 65


def put_all(nodes: NodeIndex, all_of_them: list[Node]) -> None:
    for one in all_of_them:
        nodes.put(one)


def test_a_node_that_says_the_same_again_costs_nothing() -> None:
    """Thousands of nodes update their status every few minutes."""
    many = [node(f"n{i}", rack=f"r{i % 50}") for i in range(1000)]
    nodes = NodeIndex(many)

    assert count_instructions(lambda: put_all(nodes, many)) < 300 * len(many)
    assert count_instructions(lambda: nodes.put(node("n0", rack="r1"))) < 3000
