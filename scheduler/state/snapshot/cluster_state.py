"""The state of a cluster, updated object by object, and the snapshot of a whole cluster at once.

The contract of `ClusterState`:

1. It has one owner, and no two calls at a time. A snapshot that it returned never changes.
2. Objects may be put in any order, and more than once; of one name the last object counts.
3. A snapshot is the same as that of a state into which only the present objects were put.
"""

from collections.abc import KeysView
from typing import Any, Final

from scheduler.state.inputs import Cluster, ObjectStore, Permit, StateOptions
from scheduler.state.queues.access import AccessQuestion
from scheduler.state.snapshot.builder import ObjectChanges, SnapshotBuilder
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot, difference
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
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.errors import InvariantError

__all__ = [
    "ClusterState",
    "encode",
]


class ClusterState:
    """A store for each kind of object; puts are cheap, and `snapshot` reads what has changed."""

    def __init__(self, options: StateOptions) -> None:
        self._options: Final = options
        self.nodes: Final = ObjectStore[str, Node]()
        self.pods: Final = ObjectStore[Key, Pod]()
        self.pod_groups: Final = ObjectStore[Key, PodGroup]()
        self.queues: Final = ObjectStore[str, Queue]()
        self.priority_classes: Final = ObjectStore[str, PriorityClass]()
        self.quotas: Final = ObjectStore[Key, ResourceQuota]()
        self.namespaces: Final = ObjectStore[str, Namespace]()
        self.claims: Final = ObjectStore[Key, PersistentVolumeClaim]()
        self.volumes: Final = ObjectStore[str, PersistentVolume]()
        self.storage_classes: Final = ObjectStore[str, StorageClass]()
        self.budgets: Final = ObjectStore[Key, PodDisruptionBudget]()
        self.jobsets: Final = ObjectStore[Key, JobSet]()
        self.trainjobs: Final = ObjectStore[Key, TrainJob]()
        self.suspend_refusals: Final = ObjectStore[Key, str]()  # why TrainJobs stay
        self.permits: Final = ObjectStore[Key, Permit]()  # by namespace and queue
        self.cluster: Final = Cluster(
            nodes=self.nodes.objects,
            pods=self.pods.objects,
            pod_groups=self.pod_groups.objects,
            queues=self.queues.objects,
            priority_classes=self.priority_classes.objects,
            quotas=self.quotas.objects,
            namespaces=self.namespaces.objects,
            claims=self.claims.objects,
            volumes=self.volumes.objects,
            storage_classes=self.storage_classes.objects,
            budgets=self.budgets.objects,
            jobsets=self.jobsets.objects,
            trainjobs=self.trainjobs.objects,
            suspend_refusals=self.suspend_refusals.objects,
            permits=self.permits.objects,
        )
        self._builder = SnapshotBuilder(self.cluster, options)

    @property
    def stores(self) -> tuple[ObjectStore[Any, Any], ...]:
        """Return the stores of all kinds."""
        return tuple(one for one in vars(self).values() if isinstance(one, ObjectStore))

    def put_all(self, cluster: Cluster) -> None:
        """Put all objects of a cluster beside those that are there."""
        self.nodes.put_all(cluster.nodes)
        self.pods.put_all(cluster.pods)
        self.pod_groups.put_all(cluster.pod_groups)
        self.queues.put_all(cluster.queues)
        self.priority_classes.put_all(cluster.priority_classes)
        self.quotas.put_all(cluster.quotas)
        self.namespaces.put_all(cluster.namespaces)
        self.claims.put_all(cluster.claims)
        self.volumes.put_all(cluster.volumes)
        self.storage_classes.put_all(cluster.storage_classes)
        self.budgets.put_all(cluster.budgets)
        self.jobsets.put_all(cluster.jobsets)
        self.trainjobs.put_all(cluster.trainjobs)
        self.suspend_refusals.put_all(cluster.suspend_refusals)
        self.permits.put_all(cluster.permits)

    def snapshot(self, now: int) -> EncodedSnapshot:
        """Return the snapshot at *now*, in seconds since 1970."""
        if self._builder.is_sparse:  # most pods are gone: a new builder is cheap
            self._builder = SnapshotBuilder(self.cluster, self._options)
            self.put_all(self.cluster)
        self._builder.read(self._drain_changes(), now)
        return self._builder.snapshot(now)

    @property
    def access_questions(self) -> KeysView[AccessQuestion]:
        """Return the access questions of the PodGroups of the last snapshot."""
        return self._builder.access_questions

    @property
    def terminating_pods(self) -> list[Pod]:
        """Return the pods of our scheduler that were terminating at the last snapshot."""
        return self._builder.terminating_pods

    def check(self, now: int) -> None:
        """Raise `InvariantError` if a new state with these objects has another snapshot."""
        fresh = ClusterState(self._options)
        fresh.put_all(self.cluster)
        first_difference = difference(self.snapshot(now), fresh.snapshot(now))
        if first_difference is not None:
            raise InvariantError(first_difference)

    def _drain_changes(self) -> ObjectChanges:
        return ObjectChanges(
            nodes=self.nodes.drain_changes(),
            pods=self.pods.drain_changes(),
            pod_groups=self.pod_groups.drain_changes(),
            jobsets=self.jobsets.drain_changes(),
            trainjobs=[*self.trainjobs.drain_changes(), *self.suspend_refusals.drain_changes()],
            permits=self.permits.drain_changes().keys(),
            has_queues=bool(self.queues.drain_changes()),
            has_priority_classes=bool(self.priority_classes.drain_changes()),
            quotas=self.quotas.drain_changes(),
            has_namespaces=bool(self.namespaces.drain_changes()),
            has_budgets=bool(self.budgets.drain_changes()),
            has_claims=any(
                [
                    self.claims.drain_changes(),
                    self.volumes.drain_changes(),
                    self.storage_classes.drain_changes(),
                ]
            ),
        )


def encode(cluster: Cluster, options: StateOptions) -> EncodedSnapshot:
    """Return the snapshot of a cluster; the order of its objects does not matter."""
    state = ClusterState(options)
    state.put_all(cluster)
    return state.snapshot(options.now)
