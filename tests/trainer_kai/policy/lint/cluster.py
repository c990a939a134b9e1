"""A small cluster for lint, and pods that ask for things, in short words."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.trainer_kai.policy.specs import rjob
from trainer_kai.api.cluster_kinds import Node, PriorityClass
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import QueueSpec, TopologySpec
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.lint.node_index import KnownCluster, NodeIndex
from trainer_kai.policy.lint.trainjob import lint_jobset
from trainer_kai.policy.podgroups.manifests import GroupingRules

GPU: Final = "nvidia.com/gpu"
RULES: Final = GroupingRules("bundled", "kai-scheduler", "default-queue")
Obj = dict[str, Any]

TRAIN: Final = {"train": 50, "build": 100}
RACKS: Final = {"racks": ["zone", "rack", "kubernetes.io/hostname"]}
UNLIMITED: Final = {"quota": -1, "limit": -1}


def node(name: str, gpus: int = 8, *taints: str, cpu: int = 64, **labels: str) -> Node:
    """Return a node with 512Gi; a taint is such as "key=value:NoSchedule"."""
    spread = [_taint(text) for text in taints]
    allocatable = {"cpu": str(cpu), "memory": "512Gi", "pods": "110"}
    if gpus:
        allocatable[GPU] = str(gpus)
    manifest = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": spread},
        "status": {"allocatable": allocatable},
    }
    return decode(Node, encode(manifest))


def _taint(text: str) -> Obj:
    taint_key, _, effect = text.rpartition(":")
    key, _, value = taint_key.partition("=")
    return {"key": key, "value": value, "effect": effect}


def pod_spec(gpus: int = 0, **fields: Any) -> Obj:
    amounts = {**({GPU: str(gpus)} if gpus else {}), **fields.pop("amounts", {})}
    return {"containers": [{"name": "node", "resources": {"limits": amounts}}], **fields}


def queue_spec(parent: str = "", **gpu: int) -> QueueSpec:
    """Return a queue that bounds GPUs: keywords are quota and limit."""
    resources = {"gpu": {**UNLIMITED, **gpu}, "cpu": UNLIMITED, "memory": UNLIMITED}
    found: QueueSpec = decode_spec(QueueSpec, {"parentQueue": parent, "resources": resources})
    return found


def decode_spec(struct: Any, fields: Mapping[str, Any]) -> Any:
    return decode(struct, encode(fields))


def known_cluster(
    *nodes: Node,
    queues: Mapping[str, QueueSpec] | None = None,
    priorities: Mapping[str, int] | None = None,
    topologies: Mapping[str, list[str]] | None = None,
    autoscales: bool = False,
) -> KnownCluster:
    """Return a cluster of which all kinds are known; queues only where they are given."""
    classes = {
        name: decode_spec(PriorityClass, {"metadata": {"name": name}, "value": value})
        for name, value in (TRAIN if priorities is None else priorities).items()
    }
    levels = {
        name: decode_spec(TopologySpec, {"levels": [{"nodeLabel": label} for label in labels]})
        for name, labels in (RACKS if topologies is None else topologies).items()
    }
    return KnownCluster(NodeIndex(nodes) if nodes else None, queues, classes, levels, autoscales)


def short(finding: Finding) -> str:
    """Write a finding as its code, whether it blocks, its path and its message."""
    sign = "!" if finding.blocks else "?"
    return f"{finding.code}{sign} {finding}"


class LintInput(NamedTuple):
    jobset: JobSet
    cluster: KnownCluster
    queue: str = "team"
    rules: GroupingRules = RULES


def findings(given: LintInput) -> list[str]:
    return [short(it) for it in lint_jobset(given.jobset, given.queue, given.rules, given.cluster)]


def pods(count: int, gpus: int, *after: str, **fields: Any) -> dict[str, Any]:
    """Return a replicatedJob of pods with GPUs; *pod* is what else they are made with."""
    pod = pod_spec(gpus, **fields.pop("pod", {}))
    return rjob(fields.pop("name", "node"), *after, parallelism=count, pod=pod, **fields)
