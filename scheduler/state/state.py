"""What the cluster said, kept so that the next snapshot costs no more than what has changed.

The contract of `State`:

1. It has one owner, who never calls it twice at a time. What it hands out never changes afterwards.
2. Objects may be told in any order, and more than once; of a name the last counts.
3. A snapshot says the same as that of a state which was only told what there is now.
"""

from collections.abc import KeysView
from typing import Any, Final

from scheduler.state.cluster import Cluster
from scheduler.state.encoded import Encoded
from scheduler.state.memory import Memory, News
from scheduler.state.permits import Permit, Use
from scheduler.state.said import difference
from scheduler.state.shelf import Shelf
from scheduler.state.terms import Terms
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

__all__ = ["State"]


class State:
    """Tell its shelves what there is, and ask for a snapshot at any time."""

    def __init__(self, terms: Terms) -> None:
        self._terms: Final = terms
        self.nodes: Final = Shelf[str, Node]()
        self.pods: Final = Shelf[Key, Pod]()
        self.pod_groups: Final = Shelf[Key, PodGroup]()
        self.queues: Final = Shelf[str, Queue]()
        self.priority_classes: Final = Shelf[str, PriorityClass]()
        self.quotas: Final = Shelf[Key, ResourceQuota]()
        self.namespaces: Final = Shelf[str, Namespace]()
        self.claims: Final = Shelf[Key, PersistentVolumeClaim]()
        self.volumes: Final = Shelf[str, PersistentVolume]()
        self.storage_classes: Final = Shelf[str, StorageClass]()
        self.budgets: Final = Shelf[Key, PodDisruptionBudget]()
        self.jobsets: Final = Shelf[Key, JobSet]()
        self.trainjobs: Final = Shelf[Key, TrainJob]()
        self.refused: Final = Shelf[Key, str]()  # TrainJobs that cannot be suspended, and why
        self.permits: Final = Shelf[Key, Permit]()  # by namespace and queue
        self.cluster: Final = Cluster(
            nodes=self.nodes.known,
            pods=self.pods.known,
            pod_groups=self.pod_groups.known,
            queues=self.queues.known,
            priority_classes=self.priority_classes.known,
            quotas=self.quotas.known,
            namespaces=self.namespaces.known,
            claims=self.claims.known,
            volumes=self.volumes.known,
            storage_classes=self.storage_classes.known,
            budgets=self.budgets.known,
            jobsets=self.jobsets.known,
            trainjobs=self.trainjobs.known,
            refused=self.refused.known,
            permits=self.permits.known,
        )
        self._memory = Memory(self.cluster, terms)

    @property
    def shelves(self) -> tuple[Shelf[Any, Any], ...]:
        """Return the shelves of all kinds."""
        return tuple(one for one in vars(self).values() if isinstance(one, Shelf))

    def tell_all(self, cluster: Cluster) -> None:
        """Take all objects of a cluster; what is known besides stays."""
        self.nodes.tell_all(cluster.nodes)
        self.pods.tell_all(cluster.pods)
        self.pod_groups.tell_all(cluster.pod_groups)
        self.queues.tell_all(cluster.queues)
        self.priority_classes.tell_all(cluster.priority_classes)
        self.quotas.tell_all(cluster.quotas)
        self.namespaces.tell_all(cluster.namespaces)
        self.claims.tell_all(cluster.claims)
        self.volumes.tell_all(cluster.volumes)
        self.storage_classes.tell_all(cluster.storage_classes)
        self.budgets.tell_all(cluster.budgets)
        self.jobsets.tell_all(cluster.jobsets)
        self.trainjobs.tell_all(cluster.trainjobs)
        self.refused.tell_all(cluster.refused)
        self.permits.tell_all(cluster.permits)

    def snapshot(self, now: int) -> Encoded:
        """Return what is so now, in seconds since 1970."""
        if self._memory.is_sparse:  # after most pods have gone, beginning anew is cheap
            self._memory = Memory(self.cluster, self._terms)
            self.tell_all(self.cluster)
        self._memory.read(self._news(), now)
        return self._memory.encoded(now)

    @property
    def uses(self) -> KeysView[Use]:
        """Return which namespaces used which queues when a snapshot was made, of those to ask."""
        return self._memory.uses

    @property
    def ending(self) -> list[Pod]:
        """Return the pods of our scheduler that were going when a snapshot was made."""
        return self._memory.ending

    def check(self, now: int) -> None:
        """Raise `InvariantError` if a state that knew nothing before would say something else."""
        fresh = State(self._terms)
        fresh.tell_all(self.cluster)
        found = difference(self.snapshot(now), fresh.snapshot(now))
        if found is not None:
            raise InvariantError(found)

    def _news(self) -> News:
        return News(
            nodes=self.nodes.drain(),
            pods=self.pods.drain(),
            pod_groups=self.pod_groups.drain(),
            jobsets=self.jobsets.drain(),
            trainjobs=[*self.trainjobs.drain(), *self.refused.drain()],
            permits=self.permits.drain().keys(),
            has_queues=bool(self.queues.drain()),
            has_priority_classes=bool(self.priority_classes.drain()),
            quotas=self.quotas.drain(),
            has_namespaces=bool(self.namespaces.drain()),
            has_budgets=bool(self.budgets.drain()),
            has_claims=any(
                [self.claims.drain(), self.volumes.drain(), self.storage_classes.drain()]
            ),
        )
