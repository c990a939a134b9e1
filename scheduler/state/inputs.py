"""What the state is given: the objects of a cluster, options and time, and what it warns of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

from trainer_kai.api.disruption import PodDisruptionBudget
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import AMD_GPU, DEFAULT_QUEUE, GPU, SCHEDULER_NAME
from trainer_kai.api.namespace import Namespace
from trainer_kai.api.node import Node
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.queue import Queue
from trainer_kai.api.quota import ResourceQuota
from trainer_kai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from trainer_kai.api.topology import Topology
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.queueing.queue_access import (
    QueueAccessMode,
)

__all__ = [
    "Cluster",
    "ObjectStore",
    "ObjectWarning",
    "Permit",
    "StateOptions",
    "epoch_s",
    "format_timestamp",
]


@dataclass(frozen=True)
class StateOptions:
    """What a site decides, and the time."""

    now: int  # seconds since 1970
    scheduler_name: str = SCHEDULER_NAME
    default_queue: str = DEFAULT_QUEUE
    stuck_in_releasing_s: int = 120
    max_termination_grace_s: int = 3600  # more than that nobody waits for a pod, whatever it says
    staleness_grace_s: int = 60  # below zero: without end
    gpu_resources: tuple[str, ...] = (GPU, AMD_GPU)
    priority_classes: frozenset[str] = frozenset()  # that a label may choose; none named: all
    kueue: bool = False  # Kueue runs here: it suspends and resumes TrainJobs with its label
    needs_permission: bool = False  # a namespace in no table of permits may not use a closed queue
    default_access: str = (
        QueueAccessMode.CLOSED
    )  # what a queue is that says nothing of who may use it
    consolidates_by_default: bool = (
        True  # whoever is not kept from it by his queue; else who is offered
    )


class ObjectWarning(NamedTuple):
    """What was left aside, and why: pods of a group, or a node or queue (without namespace).

    Or what of a queue or group counts otherwise than it is written.
    """

    object_key: Key
    message: str
    is_pod_pending: bool = False  # a pod that could not be counted waits: its group is told so
    still_counts: bool = False  # the queue or group is there all the same

    @property
    def text(self) -> str:
        """Return what to tell people."""
        return self.message if self.still_counts else f"left aside: {self.message}"


@lru_cache(maxsize=8192)  # siblings are made in the same second
def epoch_s(timestamp: str) -> int | None:
    """Return seconds since 1970; None for what is no time."""
    try:
        moment = datetime.fromisoformat(timestamp)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp())
    except (ValueError, OverflowError):
        return None


def format_timestamp(seconds: int) -> str:
    """Return a time as the API server writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


K = TypeVar("K")
V = TypeVar("V")


class ObjectStore(Generic[K, V]):
    """By name; it only keeps what it is told, so that telling costs next to nothing."""

    def __init__(self) -> None:
        self.objects: Final[dict[K, V]] = {}
        self._changes: dict[K, V | None] = {}  # in the order of telling

    def put(self, key: K, obj: V | None) -> None:
        """Take an object as it is now; None where there is none any more."""
        if obj is not None:
            self.objects[key] = obj
        elif self.objects.pop(key, None) is None:
            return
        self._changes[key] = obj

    def put_all(self, objects: Mapping[K, V]) -> None:
        """Take many objects."""
        self.objects.update(objects)
        self._changes.update(objects)

    def drain_changes(self) -> dict[K, V | None]:
        """Return what has changed, None for what has gone, and begin anew."""
        changes, self._changes = self._changes, {}
        return changes


class Permit(IntEnum):
    """What is known of a pair; of one that is in no table nothing is."""

    GRANTED = 0
    REFUSED = 1
    UNASKED = 2  # it was tried, and there was no answer yet


@dataclass
class Cluster:
    """All that is looked at; what has no namespace goes by its name alone."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[Key, Pod] = field(default_factory=dict)
    pod_groups: dict[Key, PodGroup] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    quotas: dict[Key, ResourceQuota] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    claims: dict[Key, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    storage_classes: dict[str, StorageClass] = field(default_factory=dict)
    budgets: dict[Key, PodDisruptionBudget] = field(default_factory=dict)
    jobsets: dict[Key, JobSet] = field(default_factory=dict)
    trainjobs: dict[Key, TrainJob] = field(default_factory=dict)
    suspend_refusals: dict[Key, str] = field(
        default_factory=dict
    )  # why TrainJobs cannot be suspended
    permits: dict[Key, Permit] = field(default_factory=dict)  # by namespace and queue
