"""Which pods name which PodGroup, which of them are on nodes, and what they use and request."""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from scheduler.state.cache.cluster_events import TERMINAL_PHASES
from scheduler.state.inputs import Cluster
from scheduler.state.podgroups.index import ReverseIndex
from trainer_kai.api.meta import Key
from trainer_kai.api.names import POD_GROUP
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.pods.requests import ResourceAmounts, pod_requests

__all__ = [
    "PodGroupMembers",
    "podgroup_key",
    "resource_use",
]

_NO_PODS: Final[frozenset[Key]] = frozenset()


class PodGroupMembers:
    """By group."""

    def __init__(self, cluster: Cluster, scheduler_name: str) -> None:
        self._cluster: Final = cluster
        self._scheduler_name: Final = scheduler_name
        self._by_group: Final[dict[Key, set[Key]]] = {}
        self._owners: Final[ReverseIndex[Key, Key]] = ReverseIndex()

    def pods_of(self, group: Key) -> AbstractSet[Key]:
        """Return the pods that name a group."""
        return self._by_group.get(group, _NO_PODS)

    @property
    def pairs(self) -> set[tuple[Key, Key]]:
        """Return each pod with its group."""
        return {(pod, group) for group, members in self._by_group.items() for pod in members}

    def move(self, pod: Key, old: Key | None, new: Key | None) -> None:
        """Let a pod be of another group than before, or of none."""
        if old is not None and old != new:
            members = self._by_group[old]
            members.discard(pod)
            if not members:
                del self._by_group[old]
        if new is not None:
            self._by_group.setdefault(new, set()).add(pod)

    def set_owners(self, group: Key, found: PodGroup | None) -> None:
        """Let a group be owned by whom it names, or be gone."""
        owners = found.metadata.owner_references if found else ()
        self._owners.put(group, (Key(group.namespace, owner.name) for owner in owners))

    def groups_of(self, jobset: Key) -> tuple[Key, ...]:
        """Return the groups that name a JobSet as their owner; it is called like its TrainJob."""
        return self._owners.sources_of(jobset)

    def is_ours(self, pod: Pod) -> bool:
        """Say whether we are to place a pod."""
        return pod.spec.scheduler_name == self._scheduler_name

    def placed_pods(self, group: Key) -> list[Key]:
        """Return the pods of a group that we put on nodes, and that are not over."""
        return sorted(
            key
            for key in self.pods_of(group)
            if (pod := self._cluster.pods[key]).spec.node_name
            and pod.status.phase not in TERMINAL_PHASES
            and self.is_ours(pod)
        )

    def placed_pods_of_jobset(self, jobset: Key) -> list[Key]:
        """Return those of all groups of a JobSet."""
        return [pod for group in self.groups_of(jobset) for pod in self.placed_pods(group)]


def podgroup_key(key: Key, pod: Pod | None) -> Key | None:
    """Return the group that a pod names."""
    name = pod.metadata.annotations.get(POD_GROUP) if pod else None
    return Key(key.namespace, name) if name else None


def resource_use(pods: Iterable[Pod]) -> tuple[ResourceAmounts, ResourceAmounts]:
    """Return what pods that are not over have, and what they ask for."""
    allocated: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for pod in pods:
        if pod.status.phase in TERMINAL_PHASES:
            continue
        try:
            amounts = pod_requests(pod.spec)
        except QuantityError:
            continue  # it cannot be placed, and its unit is told why
        requested.update(amounts)
        if pod.spec.node_name:
            allocated.update(amounts)
    return allocated, requested
