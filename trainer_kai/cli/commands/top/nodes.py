"""The GPUs of each node, and the workloads that have them. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.gpu_requests import gpu_count, gpus_of_one
from trainer_kai.api.meta import Key
from trainer_kai.api.names import POD_GROUP
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.api.text import first_listed
from trainer_kai.cli.output.table import table
from trainer_kai.policy.podgroups.grouping import workload_name
from trainer_kai.policy.pods.requests import pod_requests

SCHEMA: Final = "trainer-kai/top/v1"

_THOUSAND: Final = 1000
_MAX_NAMED: Final = 3


class NodeUse(NamedTuple):
    name: str
    gpus: float
    used: float
    pods: int  # with GPUs
    workloads: tuple[tuple[str, float], ...]  # with their GPUs, the largest first
    is_cordoned: bool

    @property
    def free(self) -> float:
        return max(self.gpus - self.used, 0)


def node_uses(nodes: Iterable[Node], pods: Iterable[Pod]) -> list[NodeUse]:
    """Return the nodes with GPUs: those with the most free GPUs first."""
    gpus_by_node: dict[str, list[tuple[str, int]]] = {}
    for pod in pods:
        gpus = _pod_gpus(pod)
        if gpus and pod.spec.node_name and pod.status.phase not in TERMINAL_PHASES:
            gpus_by_node.setdefault(pod.spec.node_name, []).append((_title(pod), gpus))
    uses = [_use(node, gpus_by_node.get(node.metadata.name, [])) for node in nodes]
    return sorted(filter(lambda it: it.gpus, uses), key=lambda it: (-it.free, it.name))


def _pod_gpus(pod: Pod) -> int:
    try:
        amounts = pod_requests(pod.spec)
    except QuantityError:
        return 0
    return sum(gpus_of_one(name) * number for name, number in amounts.items())


def _title(pod: Pod) -> str:
    meta = pod.metadata
    podgroup = meta.annotations.get(POD_GROUP, "")
    return workload_name(Key(meta.namespace, podgroup or meta.name))


def _use(node: Node, pods: Sequence[tuple[str, int]]) -> NodeUse:
    by_workload: dict[str, int] = {}
    for title, gpus in pods:
        by_workload[title] = by_workload.get(title, 0) + gpus
    largest = sorted(by_workload.items(), key=lambda it: (-it[1], it[0]))
    return NodeUse(
        name=node.metadata.name,
        gpus=gpu_count(node.status.allocatable) / _THOUSAND,
        used=sum(by_workload.values()) / _THOUSAND,
        pods=len(pods),
        workloads=tuple((title, gpus / _THOUSAND) for title, gpus in largest),
        is_cordoned=node.spec.unschedulable,
    )


def as_table(uses: Sequence[NodeUse]) -> str:
    if not uses:
        return "No node has GPUs."
    rows = [
        (
            f"{it.name} (cordoned)" if it.is_cordoned else it.name,
            f"{it.gpus:g}",
            f"{it.used:g}",
            f"{it.free:g}",
            str(it.pods),
            first_listed((f"{name} ({gpus:g})" for name, gpus in it.workloads), _MAX_NAMED) or "-",
        )
        for it in uses
    ]
    sums = [
        f"{sum(numbers):g}"
        for numbers in zip(*((it.gpus, it.used, it.free) for it in uses), strict=True)
    ]
    total = (f"{len(uses)} nodes", *sums, str(sum(it.pods for it in uses)), "")
    return table(("NODE", "GPUS", "USED", "FREE", "PODS", "WORKLOADS"), (*rows, total))


def as_document(uses: Iterable[NodeUse]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "nodes": [
            {
                "name": it.name,
                "gpus": it.gpus,
                "used": it.used,
                "free": it.free,
                "pods": it.pods,
                "cordoned": it.is_cordoned,
                "workloads": [{"workload": name, "gpus": gpus} for name, gpus in it.workloads],
            }
            for it in uses
        ],
    }
