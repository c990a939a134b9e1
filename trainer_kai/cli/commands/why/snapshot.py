"""The objects of one TrainJob as they were read from the cluster; of pods only the needed fields.

An object that may not be read is absent and its kind is in `unknown`: nothing follows from it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.event import Event
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Condition, Key, Meta
from trainer_kai.api.pod import SchedulingGate
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import PODS
from trainer_kai.api.trainjob import TrainJob

__all__ = [
    "POD_SNAPSHOTS",
    "SCHEDULER_LEASE",
    "ContainerWaiting",
    "PodSnapshot",
    "TrainJobSnapshot",
]

SCHEDULER_LEASE: Final = Key("trainer-kai", "trainer-kai-scheduler")  # as our manifests have it


class ContainerWaiting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of a container; only `waiting` is read."""

    waiting: ContainerWaiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The status of a container."""

    state: ContainerState = ContainerState()


class PodSnapshotSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The scheduler, the gates and the node of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class PodSnapshotStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The status of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod with the fields that the report needs."""

    metadata: Meta
    spec: PodSnapshotSpec = PodSnapshotSpec()
    status: PodSnapshotStatus = PodSnapshotStatus()


POD_SNAPSHOTS: Final = Resource(
    PODS.group, PODS.version, PODS.plural, PODS.kind, namespaced=True, struct=PodSnapshot
)


class TrainJobSnapshot(NamedTuple):
    """The objects of one TrainJob; events, queues and leases are only read where they matter."""

    kind: str  # TrainJob; JobSet or Pod without a TrainJob
    key: Key
    now: datetime
    scheduler_name: str
    trainjob: TrainJob | None = None
    jobset: JobSet | None = None
    podgroups: tuple[PodGroup, ...] = ()
    pods: tuple[PodSnapshot, ...] = ()
    events: tuple[Event, ...] = ()  # failures to create a JobSet or pods
    evictions: tuple[Event, ...] = ()  # events of PodGroups that wait since they were evicted
    queues: Mapping[str, bool] = {}  # whether a queue of that name exists
    leases: tuple[Lease, ...] | None = None  # that of our scheduler; None where it was not read
    unknown: frozenset[str] = frozenset()  # kinds, in the plural, that may not be read
