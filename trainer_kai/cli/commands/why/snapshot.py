"""The objects of one workload or pod as read from the cluster; of pods only some fields. Pure.

An object that the user may not read is absent, and its kind is in `unknown`: nothing is concluded
from its absence.

At the end, the shares of GPUs that pods on nodes have. The scheduler, or the binder of KAI, writes
the groups on a pod as labels; the devices are known only of pods that our scheduler has bound.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from scheduler.state.pods.gpu_share_metadata import named_gpus
from trainer_kai.api.cluster_kinds import Event, Lease
from trainer_kai.api.gpu_requests import WHOLE_GPU, read_devices, read_fraction, read_memory_mib
from trainer_kai.api.jobset import Job, JobSet
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Condition, Key, Meta
from trainer_kai.api.names import (
    GPU_DEVICES,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
)
from trainer_kai.api.pod import TERMINAL_PHASES, SchedulingGate
from trainer_kai.api.resources import PODS
from trainer_kai.api.text import noun_form
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload, trainjob_suspendable
from trainer_kai.policy.workloads.workload import Suspendable, Workload

SCHEDULER_LEASE: Final = Key("trainer-kai", "trainer-kai-scheduler")  # as our manifests have it


class ContainerWaiting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    waiting: ContainerWaiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    state: ContainerState = ContainerState()


class PodSnapshotSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class PodSnapshotStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: PodSnapshotSpec = PodSnapshotSpec()
    status: PodSnapshotStatus = PodSnapshotStatus()


POD_SNAPSHOTS: Final = PODS.with_struct(PodSnapshot)


class WhySubject(NamedTuple):
    """The object that the user asks about, and the names that the cluster's settings contain."""

    kind: str  # "" for the first of TrainJob, JobSet, Job and Pod that exists
    key: Key
    scheduler_name: str
    default_queue: str


class TrainJobSnapshot(NamedTuple):
    """The objects of one subject; from `events` on they are read only if a reason needs them."""

    kind: str  # TrainJob; another workload, or Pod, without a TrainJob
    key: Key
    now: datetime
    scheduler_name: str
    default_queue: str
    trainjob: TrainJob | None = None
    jobset: JobSet | None = None
    job: Job | None = None  # one that no JobSet owns
    other: Workload | None = None  # of a kind that admission does not mark
    other_conditions: tuple[Condition, ...] = ()
    podgroups: tuple[PodGroup, ...] = ()
    pods: tuple[PodSnapshot, ...] = ()
    events: tuple[Event, ...] = ()  # failures to create a JobSet or pods
    evictions: tuple[Event, ...] = ()  # events of PodGroups that wait since they were evicted
    queues: Mapping[str, bool] = {}  # whether a queue of that name exists
    leases: tuple[Lease, ...] | None = None  # that of our scheduler; None if it was not read
    has_kueue: bool | None = None  # whether the cluster serves Kueue's API; None if not known
    unknown: frozenset[str] = frozenset()  # plural kinds that the user may not read

    @property
    def workload(self) -> Workload | None:
        """Return the subject as a workload; None without one, or for a part of another."""
        if self.other is not None:
            return self.other
        if self.jobset is not None:
            return jobset_workload(self.jobset)
        return job_workload(self.job) if self.job is not None else None

    @property
    def suspendable(self) -> Suspendable | None:
        """Return the object that its users suspend and resume; None if it is not known."""
        if self.trainjob is not None:
            return trainjob_suspendable(self.trainjob)
        workload = self.workload
        if workload is None or workload.needs_owner:
            return None
        return workload.as_suspendable()


class PlacedGpuShare(NamedTuple):
    """The share that a pod on a node has of one GPU, or of each of several."""

    pod: str
    node: str
    gpus: int
    thousandths: int  # of each GPU; 0 if the pod requests memory
    memory_mib: int  # of each GPU, or 0
    groups: tuple[str, ...]  # the ids of the shared GPUs, in their order
    devices: tuple[str, ...]  # their UUIDs, as far as they are known

    def __str__(self) -> str:
        amount = f"{self.thousandths / WHOLE_GPU:.3f}".rstrip("0").removesuffix(".")
        if self.memory_mib:
            amount = f"{self.memory_mib} MiB"
        of_gpus = "of a GPU" if self.gpus == 1 else f"of each of {self.gpus} GPUs"
        names = f"{_named('device', self.devices)}, {_named('group', self.groups)}"
        return f"{self.pod} on {self.node}: {amount} {of_gpus}, {names}"

    def as_json(self) -> dict[str, Any]:
        return {
            "pod": self.pod,
            "node": self.node,
            "gpus": self.gpus,
            "fraction": self.thousandths / WHOLE_GPU if self.thousandths else None,
            "memoryMiB": self.memory_mib or None,
            "groups": [*self.groups],
            "devices": [*self.devices],
        }


def placed_gpu_shares(pods: Iterable[PodSnapshot]) -> Iterator[PlacedGpuShare]:
    """Yield the shares of pods on nodes that have not ended, in the order of their names."""
    for pod in sorted(pods, key=lambda it: it.metadata.name):
        if pod.spec.node_name and pod.status.phase not in TERMINAL_PHASES:
            share = _share(pod)
            if share is not None:
                yield share


def _share(pod: PodSnapshot) -> PlacedGpuShare | None:
    meta = pod.metadata
    fraction = read_fraction(meta.annotations.get(GPU_FRACTION, ""))
    memory_mib = read_memory_mib(meta.annotations.get(GPU_MEMORY, ""))
    gpus = read_devices(meta.annotations.get(GPU_FRACTION_DEVICES, "1"))
    groups = named_gpus(meta.labels)
    is_one_kind = isinstance(fraction, str) is not isinstance(memory_mib, str)
    if isinstance(gpus, str) or not groups or not is_one_kind:
        return None
    return PlacedGpuShare(
        meta.name,
        pod.spec.node_name,
        gpus,
        0 if isinstance(fraction, str) else fraction,
        0 if isinstance(memory_mib, str) else memory_mib,
        tuple(groups),
        tuple(filter(None, meta.annotations.get(GPU_DEVICES, "").split(","))),
    )


def _named(what: str, names: tuple[str, ...]) -> str:
    if not names:
        return f"{what} not known"
    return f"{noun_form(len(names), what)} {' and '.join(names)}"
