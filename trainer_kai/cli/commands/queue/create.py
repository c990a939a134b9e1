"""`trainer-kai queue create`: create a queue, by default closed.

Its quotas of CPU and memory are what nodes have beside the GPUs of its quota. An unlimited quota
could not be reclaimed from: pods without GPUs would keep the CPUs of GPU nodes from other queues.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.gpu_requests import gpus_of_one
from trainer_kai.api.kai_kinds import Queue, QueueResources, QueueSpec
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS
from trainer_kai.api.quantity import milli, whole
from trainer_kai.api.resources import NODES, QUEUES
from trainer_kai.api.syntax import dns_subdomain_fault, label_value_fault
from trainer_kai.api.validate import queue_faults
from trainer_kai.cli.commands.queue.namespace_queues import PODGROUPS
from trainer_kai.cli.commands.queue.write_plan import (
    QueueReader,
    QueueWrite,
    WritePlan,
    existing_queue,
)
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, grant_command

_EXISTS: Final = (
    "already exists with other settings: `trainer-kai queue close` and `open` change its access, "
    "`kubectl edit queue` changes its quota, limit, weight and parent"
)
_NO_NODES: Final = (
    "its quotas of CPU and memory are unlimited (-1), so no other queue can reclaim these from it. "
    "Set them with `kubectl edit queue`; they could not be computed: "
)
_MILLI: Final = 1000  # millicores of a CPU, and megabytes of a gigabyte
_MEGABYTE: Final = 10**6


class BesideGpus(NamedTuple):
    """CPU and memory, in the units of a Queue; -1 means unlimited."""

    millicores: int
    megabytes: int


_UNLIMITED: Final = BesideGpus(-1, -1)


class NewQueue(NamedTuple):
    name: str
    parent: str
    gpu_quota: float
    gpu_limit: float
    weight: float
    access: QueueAccessMode

    def body(self, beside: BesideGpus) -> dict[str, Any]:
        unlimited = {"limit": -1, "overQuotaWeight": 1}
        spec: dict[str, Any] = {
            "resources": {
                "gpu": {
                    "quota": self.gpu_quota,
                    "limit": self.gpu_limit,
                    "overQuotaWeight": self.weight,
                },
                "cpu": {"quota": beside.millicores, **unlimited},
                "memory": {"quota": beside.megabytes, **unlimited},
            }
        }
        if self.parent:
            spec["parentQueue"] = self.parent
        return {
            "apiVersion": QUEUES.api_version,
            "kind": QUEUES.kind,
            "metadata": {"name": self.name, "annotations": {ACCESS: str(self.access)}},
            "spec": spec,
        }


async def plan_create(reader: QueueReader, new: NewQueue) -> WritePlan:
    """Return the write that creates a queue; raise for a queue that could not be used."""
    beside, quotas = await beside_gpus(reader, new.gpu_quota)
    body, path = new.body(beside), f"queue {new.name}"
    wanted = decode(Queue, encode(body))
    faults = [*queue_faults(wanted)]
    # A label of pods names their queue.
    if fault := dns_subdomain_fault(new.name) or label_value_fault(new.name):
        faults.append(FieldError("metadata.name", fault))
    queues = await reader.queues()
    existing = queues.get(new.name)
    is_same = existing is not None and _is_same(existing, wanted)
    if existing is not None and not is_same:
        faults.append(FieldError(path, _EXISTS))
    if faults:
        raise ConfigError(faults)
    if new.parent:
        existing_queue(queues, new.parent)
    text = f"annotation {ACCESS} is {new.access}"
    write = QueueWrite(QUEUES, Key("", new.name), None if is_same else body, text)
    outcome = f"every namespace may use queue {new.name}"
    # Also for the same name as before: grants of an earlier queue with that name still count.
    if new.access is QueueAccessMode.CLOSED:
        allow = grant_command(new.name, "NAMESPACE", user="USER")
        outcome = (
            f"queue {new.name} is closed. Grant it to the workloads of a namespace and to a user: "
            f"`{allow}` (or --group GROUP)"
        )
    notes = await parent_notes(reader, queues, new.parent)
    return WritePlan((write,), (outcome,) if is_same else (quotas, outcome), notes)


async def beside_gpus(reader: QueueReader, gpus: float) -> tuple[BesideGpus, str]:
    """Return the quotas of CPU and memory for a quota of GPUs, and what to say about them."""
    if gpus == 0:
        text = "its quota is 0 GPU, 0 CPU and 0 memory: it runs on what other queues leave, and no"
        return BesideGpus(0, 0), f"{text} non-preemptible pod starts in it"
    if gpus < 0:
        return _UNLIMITED, "its quota is unlimited: no other queue can reclaim from it"
    try:
        nodes = await reader.list_all(ListTarget(NODES))
    except ConfigError as error:
        return _UNLIMITED, f"{_NO_NODES}{error.faults[0].message}"
    per_gpu = _per_gpu(nodes)
    if per_gpu is None:
        return _UNLIMITED, f"{_NO_NODES}no node has GPUs"
    share = Fraction(gpus)
    beside = BesideGpus(int(share * per_gpu[0]), int(share * per_gpu[1] / _MEGABYTE))
    cpus, gigabytes = beside.millicores / _MILLI, beside.megabytes / _MILLI
    text = f"its quota is {gpus:g} GPU, and what nodes have beside so many: {cpus:g} CPU and"
    return beside, f"{text} {gigabytes:g} GB of memory"


def _per_gpu(nodes: Iterable[Node]) -> tuple[Fraction, Fraction] | None:
    """Return the millicores and bytes per GPU of all nodes with GPUs; None if none has."""
    gpus = millicores = size = 0
    for allocatable in (it.status.allocatable for it in nodes):
        here = sum(whole(it) * gpus_of_one(name) for name, it in allocatable.items())
        if here > 0:
            gpus += here
            millicores += milli(allocatable.get("cpu", "0"))
            size += whole(allocatable.get("memory", "0"))
    return (Fraction(millicores, gpus), Fraction(size, gpus)) if gpus else None


def _is_same(existing: Queue, wanted: Queue) -> bool:
    """Say whether an existing queue equals the one to create, whatever it has beside GPUs.

    Nodes may have changed since, and earlier versions created queues without such quotas.
    """
    access = existing.metadata.annotations.get(ACCESS), wanted.metadata.annotations.get(ACCESS)
    return _with_gpus_only(existing) == _with_gpus_only(wanted) and access[0] == access[1]


def _with_gpus_only(queue: Queue) -> QueueSpec:
    resources = queue.spec.resources or QueueResources()
    return replace(queue.spec, resources=QueueResources(gpu=resources.gpu))


async def parent_notes(
    reader: QueueReader, queues: Mapping[str, Queue], parent: str
) -> tuple[str, ...]:
    """Return a note that the parent takes no more pods, if this is its first child.

    Raise if the parent has PodGroups, because they would wait for ever.
    """
    if not parent or any(it.spec.parent_queue == parent for it in queues.values()):
        return ()
    podgroups = [
        it.metadata.key
        for it in await reader.list_all(ListTarget(PODGROUPS))
        if it.spec.queue == parent
    ]
    if podgroups:
        message = (
            f"has {len(podgroups)} PodGroups (such as {min(podgroups)}). They would wait for ever, "
            "because a queue with child queues takes no pods. Create the new queue below another "
            "parent, or wait until the PodGroups end"
        )
        raise ConfigError([FieldError(f"queue {parent}", message)])
    now = f"queue {parent} has no child queue yet"
    return (f"{now}; with one it takes no pods, and pods that name it wait",)
