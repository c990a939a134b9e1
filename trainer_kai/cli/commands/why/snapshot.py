"""The objects of one TrainJob, Job or pod as read from the cluster; of pods only some fields.

An object that the user may not read is absent, and its kind is in `unknown`: nothing is concluded
from its absence.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.event import Event
from trainer_kai.api.job import Job
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Condition, Key, Meta
from trainer_kai.api.pod import SchedulingGate
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import PODS
from trainer_kai.api.trainjob import TrainJob

SCHEDULER_LEASE: Final = Key("trainer-kai", "trainer-kai-scheduler")  # as our manifests have it


class ContainerWaiting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a container is not running yet."""

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
    reason: str = ""
    message: str = ""
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


class WhySubject(NamedTuple):
    """The object that the user asks about, and the names that the cluster's settings contain."""

    kind: str  # TrainJob, Job or Pod
    key: Key
    scheduler_name: str
    default_queue: str


class TrainJobSnapshot(NamedTuple):
    """The objects of one subject; from `events` on they are read only if a reason needs them."""

    kind: str  # TrainJob; JobSet, Job or Pod without a TrainJob
    key: Key
    now: datetime
    scheduler_name: str
    default_queue: str
    trainjob: TrainJob | None = None
    jobset: JobSet | None = None
    job: Job | None = None  # one that no JobSet owns
    podgroups: tuple[PodGroup, ...] = ()
    pods: tuple[PodSnapshot, ...] = ()
    events: tuple[Event, ...] = ()  # failures to create a JobSet or pods
    evictions: tuple[Event, ...] = ()  # events of PodGroups that wait since they were evicted
    queues: Mapping[str, bool] = {}  # whether a queue of that name exists
    leases: tuple[Lease, ...] | None = None  # that of our scheduler; None if it was not read
    has_kueue: bool | None = None  # whether the cluster serves Kueue's API; None if not known
    unknown: frozenset[str] = frozenset()  # plural kinds that the user may not read
