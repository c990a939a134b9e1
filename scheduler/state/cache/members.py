"""Which pods name which PodGroup, which of them are on nodes, and what they use and request."""

from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Final

from scheduler.state.inputs import Cluster
from scheduler.state.nodes.node_table import gpu_memory_mib
from scheduler.state.podgroups.index import ReverseIndex
from scheduler.state.pods.gpu_share_metadata import GpuSharing, read_gpu_sharing
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import AMD_GPU, GPU, POD_GROUP
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.pods.requests import ResourceAmounts, pod_requests
from trainer_kai.policy.workloads.kinds import workload_keys
from trainer_kai.policy.workloads.workload import ObjectKey

_NO_PODS: Final[frozenset[Key]] = frozenset()
_GPUS: Final = (GPU, AMD_GPU)  # of pods that request whole ones


class PodGroupMembers:
    def __init__(self, cluster: Cluster, scheduler_name: str) -> None:
        self._cluster: Final = cluster
        self._scheduler_name: Final = scheduler_name
        self._by_group: Final[dict[Key, set[Key]]] = {}
        self._owners: Final[ReverseIndex[Key, ObjectKey]] = ReverseIndex()

    def pods_of(self, group: Key) -> AbstractSet[Key]:
        return self._by_group.get(group, _NO_PODS)

    @property
    def pairs(self) -> set[tuple[Key, Key]]:
        return {(pod, group) for group, members in self._by_group.items() for pod in members}

    def move(self, pod: Key, old: Key | None, new: Key | None) -> None:
        if old is not None and old != new:
            members = self._by_group[old]
            members.discard(pod)
            if not members:
                del self._by_group[old]
        if new is not None:
            self._by_group.setdefault(new, set()).add(pod)

    def set_owners(self, group: Key, podgroup: PodGroup | None) -> None:
        owners = podgroup.metadata.owner_references if podgroup else ()
        self._owners.put(group, (ObjectKey(it.kind, group.namespace, it.name) for it in owners))

    def groups_of(self, suspendable: ObjectKey) -> tuple[Key, ...]:
        """Return the PodGroups that name a workload, or that of an owner, as their owner."""
        workloads = workload_keys(suspendable)
        return tuple([group for it in workloads for group in self._owners.sources_of(it)])

    def is_ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name == self._scheduler_name

    def placed_pods(self, group: Key) -> list[Key]:
        """Return the pods of a PodGroup on nodes that are ours and have not ended."""
        return sorted(
            key
            for key in self.pods_of(group)
            if (pod := self._cluster.pods[key]).spec.node_name
            and pod.status.phase not in TERMINAL_PHASES
            and self.is_ours(pod)
        )

    def placed_pods_of_all(self, suspendable: ObjectKey) -> list[Key]:
        return [pod for group in self.groups_of(suspendable) for pod in self.placed_pods(group)]

    def resource_use(self, group: Key) -> tuple[ResourceAmounts, ResourceAmounts]:
        """Return what the pods of a PodGroup that have not ended are allocated, and request."""
        allocated: Counter[str] = Counter()
        requested: Counter[str] = Counter()
        for pod in (self._cluster.pods[key] for key in self.pods_of(group)):
            if pod.status.phase in TERMINAL_PHASES:
                continue
            try:
                amounts = pod_requests(pod.spec)
            except QuantityError:
                continue  # its PodGroup has a pre-filter failure
            requested.update(amounts)
            requested[GPU] += self._shares(pod, amounts)
            if pod.spec.node_name:
                allocated.update(amounts)
                allocated[GPU] += self._shares(pod, amounts)
        return +allocated, +requested

    def _shares(self, pod: Pod, amounts: ResourceAmounts) -> int:
        """Return the thousandths of GPUs that a pod shares, as its queue is charged for them.

        How much of a GPU a request of memory is, is known on a node; before it counts as nothing.
        """
        sharing = read_gpu_sharing(pod.metadata.annotations, amounts, _GPUS)
        if not isinstance(sharing, GpuSharing):
            return 0
        node = self._cluster.nodes.get(pod.spec.node_name)
        if sharing.mib and node is None:
            return 0
        return sharing.queue_request(gpu_memory_mib(node) if node else 0)


def podgroup_key(key: Key, pod: Pod | None) -> Key | None:
    name = pod.metadata.annotations.get(POD_GROUP) if pod else None
    return Key(key.namespace, name) if name else None
