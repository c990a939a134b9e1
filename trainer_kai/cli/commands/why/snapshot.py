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
    """How a container is; of other states nothing is read."""

    waiting: ContainerWaiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What has become of a container."""

    state: ContainerState = ContainerState()


class PodSnapshotSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Whom a pod asks for a node, and which it has."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class PodSnapshotStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What has become of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod."""

    metadata: Meta
    spec: PodSnapshotSpec = PodSnapshotSpec()
    status: PodSnapshotStatus = PodSnapshotStatus()


POD_SNAPSHOTS: Final = Resource(
    PODS.group, PODS.version, PODS.plural, PODS.kind, namespaced=True, struct=PodSnapshot
)


class TrainJobSnapshot(NamedTuple):
    """All of it. What is asked for only where it matters may be missing without being unknown."""

    kind: str  # what is asked about: a TrainJob, or what has none above it
    key: Key
    now: datetime
    scheduler_name: str
    trainjob: TrainJob | None = None
    jobset: JobSet | None = None
    podgroups: tuple[PodGroup, ...] = ()
    pods: tuple[PodSnapshot, ...] = ()
    events: tuple[Event, ...] = ()  # of what could not be made
    evictions: tuple[Event, ...] = ()  # of groups that wait since they were evicted
    queues: Mapping[str, bool] = {}  # whether there is one of that name
    leases: tuple[Lease, ...] | None = None  # that of our scheduler; None where nobody has looked
    unknown: frozenset[str] = frozenset()  # kinds, in the plural, that may not be read
