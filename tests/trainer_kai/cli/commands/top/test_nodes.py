"""`trainer-kai top`: the GPUs of nodes, and who has them."""

from typing import Any

from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.pod import Pod
from trainer_kai.cli.commands.top.nodes import as_document, as_table, node_uses


def node(name: str, gpus: int, **spec: Any) -> Node:
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {}}
    return decode(Node, encode({"metadata": {"name": name}, "spec": spec, "status": status}))


def pod(name: str, on: str, gpus: int, phase: str = "Running", group: str = "") -> Pod:
    requests = {"requests": {"nvidia.com/gpu": str(gpus)}}
    fields = {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "annotations": {"pod-group-name": group} if group else {},
        },
        "spec": {"nodeName": on, "containers": [{"resources": requests}]},
        "status": {"phase": phase},
    }
    return decode(Pod, encode(fields))


def test_nodes_with_the_most_free_gpus_come_first() -> None:
    """With the workloads that have them; pods that ended, and nodes without GPUs, do not count."""
    group = "pg-night-01234567-0123-0123-0123-0123456789ab"
    uses = node_uses(
        [node("a", 8), node("b", 8, unschedulable=True), node("cpu", 0)],
        [
            pod("night-0", "a", 4, group=group),
            pod("night-1", "a", 3, group=group),
            pod("single", "a", 1),
            pod("over", "b", 8, "Succeeded"),
        ],
    )

    assert as_table(uses).splitlines() == [
        "NODE           GPUS   USED   FREE   PODS   WORKLOADS",
        "b (cordoned)   8      0      8      0      -",
        "a              8      8      0      3      ns/night (7), ns/single (1)",
        "2 nodes        16     8      8      3",
    ]
    assert as_document(uses)["nodes"][1]["workloads"][0] == {"workload": "ns/night", "gpus": 7}
    assert as_table([]) == "No node has GPUs."
