"""Nodes that exist only in the API."""

import pytest

from e2e.cluster.nodes import GPU, GPU_MEMORY_LABEL, RACK_LABEL, NodeShape, make_nodes
from tests.support.case import Case, ids

# nodes, racks -> the rack of each node
RACKS = [
    Case("no racks, no label", (2, 0), [None, None]),
    Case("one rack holds all", (3, 1), ["rack-0"] * 3),
    Case("racks are runs of neighbours", (4, 2), ["rack-0", "rack-0", "rack-1", "rack-1"]),
    Case("what is left over widens a rack", (3, 2), ["rack-0", "rack-0", "rack-1"]),
    Case("as many racks as nodes", (2, 2), ["rack-0", "rack-1"]),
    Case("no nodes, no racks", (0, 2), []),
]


@pytest.mark.parametrize("case", RACKS, ids=ids)
def test_racks(case: Case[tuple[int, int], list[str | None]]) -> None:
    """Nodes that are next to each other stand in one rack."""
    count, racks = case.given

    nodes = make_nodes(count, racks=racks)

    assert [node["metadata"]["labels"].get(RACK_LABEL) for node in nodes] == case.want


PLAIN_LABELS = {"kubernetes.io/hostname": "n-0", "kubernetes.io/os": "linux"}
LABELS = [
    Case("a plain node has what every node has", NodeShape(), PLAIN_LABELS),
    Case(
        "the memory of its GPUs is a label",
        NodeShape(gpu_memory_mib=81_559),
        {**PLAIN_LABELS, GPU_MEMORY_LABEL: "81559"},
    ),
    Case(
        "labels of its own are added",
        NodeShape(labels={"zone": "a"}),
        {**PLAIN_LABELS, "zone": "a"},
    ),
]


@pytest.mark.parametrize("case", LABELS, ids=ids)
def test_labels(case: Case[NodeShape, dict[str, str]]) -> None:
    """The labels of a node say what is known of it and no more."""
    (node,) = make_nodes(1, case.given, prefix="n")

    assert node["metadata"] == {"name": "n-0", "labels": case.want}


PLAIN_CAPACITY = {"cpu": "96", "memory": "1Ti", "pods": "250", GPU: "8"}
CAPACITY = [
    Case("a plain node has eight GPUs", NodeShape(), PLAIN_CAPACITY),
    Case("a node may have fewer", NodeShape(gpus=1), {**PLAIN_CAPACITY, GPU: "1"}),
    Case(
        "a node without GPUs does not know the resource",
        NodeShape(gpus=0, cpu="4", memory="8Gi", pods=10),
        {"cpu": "4", "memory": "8Gi", "pods": "10"},
    ),
    Case(
        "other resources are added",
        NodeShape(extra_resources={"rdma/hca": "2"}),
        {**PLAIN_CAPACITY, "rdma/hca": "2"},
    ),
]


@pytest.mark.parametrize("case", CAPACITY, ids=ids)
def test_capacity(case: Case[NodeShape, dict[str, str]]) -> None:
    """All of a node's room is there to be given out."""
    (node,) = make_nodes(1, case.given)

    assert node["status"] == {"capacity": case.want, "allocatable": case.want}


def test_taints_are_each_node_s_own() -> None:
    """Every node carries the taints of its shape; to change those of one changes no other's."""
    shape = NodeShape(taints=[{"key": "spot", "value": "yes", "effect": "NoSchedule"}])

    one, other = make_nodes(2, shape)
    one["spec"]["taints"][0]["key"] = "changed"

    assert other["spec"]["taints"] == [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]
