"""The objects of a cluster, by name, as whoever read them hands them over."""

from dataclasses import dataclass, field

from scheduler.state.permits import Permit
from trainer_kai.api.disruption import PodDisruptionBudget
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
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

__all__ = ["Cluster"]


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
