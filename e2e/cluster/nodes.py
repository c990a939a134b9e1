"""GPU nodes that exist only in the API. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.cluster.resources import Obj

GPU: Final = "nvidia.com/gpu"
GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
RACK_LABEL: Final = "topology.kubernetes.io/rack"


@dataclass(frozen=True)
class NodeShape:
    """What every node of a batch is like."""

    gpus: int = 8
    gpu_memory_mib: int | None = None
    cpu: str = "96"
    memory: str = "1Ti"
    pods: int = 250
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    extra_resources: Mapping[str, str] = field(default_factory=dict)


def make_nodes(
    count: int, shape: NodeShape | None = None, *, prefix: str = "node", racks: int = 0
) -> list[Obj]:
    """Return *count* nodes named `<prefix>-<i>`, spread over *racks* in runs of neighbours."""
    shape = shape or NodeShape()
    return [_make_node(f"{prefix}-{i}", shape, _rack_of(i, count, racks)) for i in range(count)]


def _rack_of(index: int, count: int, racks: int) -> str | None:
    return f"rack-{index * racks // count}" if racks else None


def _make_node(name: str, shape: NodeShape, rack: str | None) -> Obj:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **shape.labels}
    if rack is not None:
        labels[RACK_LABEL] = rack
    if shape.gpu_memory_mib is not None:
        labels[GPU_MEMORY_LABEL] = str(shape.gpu_memory_mib)
    room: dict[str, Any] = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
    if shape.gpus:
        room[GPU] = str(shape.gpus)
    room |= shape.extra_resources
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [dict(taint) for taint in shape.taints]},
        "status": {"capacity": room, "allocatable": room},
    }
