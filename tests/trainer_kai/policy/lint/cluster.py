"""A small cluster for lint, and pods that ask for things, in short words."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.trainer_kai.policy.specs import rjob
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.node import Node
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.queue import QueueSpec
from trainer_kai.api.topology import TopologySpec
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.lint import Bounds, Nodes, lint_jobset

__all__ = [
    "GPU",
    "RULES",
    "Given",
    "asking",
    "bounds",
    "decode_spec",
    "node",
    "pods",
    "queue_spec",
    "short",
    "told",
]

GPU: Final = "nvidia.com/gpu"
RULES: Final = Rules("bundled", "kai-scheduler", "default-queue")
Obj = dict[str, Any]

TRAIN: Final = {"train": 50, "build": 100}
RACKS: Final = {"racks": ["zone", "rack", "kubernetes.io/hostname"]}
UNBOUND: Final = {"quota": -1, "limit": -1}


def node(name: str, gpus: int = 8, *taints: str, cpu: int = 64, **labels: str) -> Node:
    """Return a node with 512Gi; a taint is such as "key=value:NoSchedule"."""
    spread = [_taint(text) for text in taints]
    allocatable = {"cpu": str(cpu), "memory": "512Gi", "pods": "110"}
    if gpus:
        allocatable[GPU] = str(gpus)
    whole = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": spread},
        "status": {"allocatable": allocatable},
    }
    return decode(Node, encode(whole))


def _taint(text: str) -> Obj:
    said, _, effect = text.rpartition(":")
    key, _, value = said.partition("=")
    return {"key": key, "value": value, "effect": effect}


def asking(gpus: int = 0, **fields: Any) -> Obj:
    """Return the spec of pods that ask for GPUs, and for other *amounts*; the rest is as said."""
    amounts = {**({GPU: str(gpus)} if gpus else {}), **fields.pop("amounts", {})}
    return {"containers": [{"name": "node", "resources": {"limits": amounts}}], **fields}


def queue_spec(parent: str = "", **gpu: int) -> QueueSpec:
    """Return a queue that bounds GPUs: keywords are quota and limit."""
    resources = {"gpu": {**UNBOUND, **gpu}, "cpu": UNBOUND, "memory": UNBOUND}
    found: QueueSpec = decode_spec(QueueSpec, {"parentQueue": parent, "resources": resources})
    return found


def decode_spec(struct: Any, fields: Mapping[str, Any]) -> Any:
    """Read a part of an object."""
    return decode(struct, encode(fields))


def bounds(
    *nodes: Node,
    queues: Mapping[str, QueueSpec] | None = None,
    priorities: Mapping[str, int] | None = None,
    topologies: Mapping[str, list[str]] | None = None,
    grows: bool = False,
) -> Bounds:
    """Return a cluster that is known as a whole; queues only where they are said."""
    classes = {
        name: decode_spec(PriorityClass, {"metadata": {"name": name}, "value": value})
        for name, value in (TRAIN if priorities is None else priorities).items()
    }
    levels = {
        name: decode_spec(TopologySpec, {"levels": [{"nodeLabel": label} for label in labels]})
        for name, labels in (RACKS if topologies is None else topologies).items()
    }
    return Bounds(Nodes(nodes) if nodes else None, queues, classes, levels, grows)


def short(finding: Finding) -> str:
    """Write a finding as its code, whether it blocks, its path and its message."""
    sign = "!" if finding.blocks else "?"
    return f"{finding.code}{sign} {finding}"


class Given(NamedTuple):
    """A JobSet, and what is known."""

    jobset: JobSet
    bounds: Bounds
    queue: str = "team"
    rules: Rules = RULES


def told(given: Given) -> list[str]:
    """Return what is found."""
    return [short(it) for it in lint_jobset(given.jobset, given.queue, given.rules, given.bounds)]


def pods(count: int, gpus: int, *after: str, **fields: Any) -> dict[str, Any]:
    """Return a replicatedJob of pods with GPUs; *pod* is what else they are made with."""
    pod = asking(gpus, **fields.pop("pod", {}))
    return rjob(fields.pop("name", "node"), *after, parallelism=count, pod=pod, **fields)
