"""Nominated PodGroups come first, and their capacity is reserved: rules 10a and 10b."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from tests.reference.scheduler.model import ClusterInfo, NodeInfo, PodGroupInfo, PodInfo, QueueInfo
from tests.reference.scheduler.queue_order import capacity_failure, is_nominated
from tests.reference.scheduler.resources import QueueAmounts, added, subtracted
from tests.reference.scheduler.shared_gpus import add_shares, fits_on
from tests.reference.scheduler.subgroups import pod_rank, tasks_to_allocate

NominatedPlaces = list[tuple[NodeInfo, PodInfo]]  # what is reserved together


def nomination_rank(
    cluster: ClusterInfo, podgroups: list[PodGroupInfo], queue: QueueInfo, best: PodGroupInfo
) -> int:
    """Say whether the best PodGroup below a queue is nominated, or another one, or none."""
    if is_nominated(cluster, best):
        return 0
    below = [one for one in podgroups if queue in cluster.queue_with_ancestors(one.queue)]
    return 1 if any(is_nominated(cluster, one) for one in below) else 2


class NominatedCapacity:
    """Capacity reserved for nominated PodGroups until their turn, taken off what is releasing."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self.places_by_podgroup: dict[PodGroupInfo, list[NominatedPlaces]] = {}
        self._cluster = cluster

    def reserve(self, podgroups: Iterable[PodGroupInfo]) -> None:
        """Reserve the nominated nodes of PodGroups: for their next tasks, then pod by pod."""
        parts: dict[PodGroupInfo, list[list[PodInfo]]] = {}
        for podgroup in podgroups:
            if is_nominated(self._cluster, podgroup):
                first = [pod for pod in tasks_to_allocate(podgroup.root) if not pod.is_expected]
                rest = [[pod] for pod in _waiting(podgroup) if pod not in first]
                parts[podgroup] = [first, *rest]
        self._reserve_all(parts)

    def release(self, podgroup: PodGroupInfo) -> list[list[PodInfo]]:
        """Reserve nothing for a PodGroup any more; return what was reserved."""
        parts = self.places_by_podgroup.pop(podgroup, [])
        for part in parts:
            self._undo(part)
        return [[pod for _, pod in part] for part in parts]

    @contextmanager
    def released(self, podgroups: Iterable[PodGroupInfo]) -> Iterator[None]:
        """Reserve nothing for PodGroups meanwhile, and then again what is still there."""
        parts = {podgroup: self.release(podgroup) for podgroup in podgroups}
        yield
        self._reserve_all(parts)

    def may_take_from(self, podgroup: PodGroupInfo) -> list[PodGroupInfo]:
        """Return the PodGroups that one could preempt at once: it may take their capacity."""
        return [
            one
            for one in self.places_by_podgroup
            if one.queue == podgroup.queue
            and one.priority < podgroup.priority
            and one.preemptible
            and not podgroup.in_preemption_delay
        ]

    def capacity_failure(self, podgroup: PodGroupInfo, more: QueueAmounts) -> str:
        """Return the reason of a bound; reserved capacity counts unless it may be taken."""
        others = [
            (one, pod)
            for one, parts in self.places_by_podgroup.items()
            if one not in self.may_take_from(podgroup)
            for part in parts
            for _, pod in part
        ]
        queues = [
            (it, [*it.allocated], [*it.non_preemptible]) for it in self._cluster.queues.values()
        ]
        for one, pod in others:
            self._cluster.charge(one, pod)
        reason = capacity_failure(self._cluster, podgroup, more)
        for queue, allocated, fixed in queues:
            queue.allocated, queue.non_preemptible = allocated, fixed
        return reason

    def _reserve_all(self, parts: Mapping[PodGroupInfo, list[list[PodInfo]]]) -> None:
        """Reserve all or nothing of each part, for the oldest PodGroup first."""
        for podgroup in sorted(parts, key=lambda it: (it.created, it.uid)):
            if some := [part for pods in parts[podgroup] if (part := self._reserve_places(pods))]:
                self.places_by_podgroup[podgroup] = some

    def _reserve_places(self, pods: list[PodInfo]) -> NominatedPlaces:
        """Reserve capacity for all of these pods, or for none."""
        at = {node_info.name: node_info for node_info in self._cluster.nodes}
        some: NominatedPlaces = []
        spreads = self._cluster.spreads_gpus
        for pod in pods:
            node_info = at.get(pod.nominated)
            if node_info is None or not fits_on(pod, node_info, spreads=spreads):
                self._undo(some)
                return []
            add_shares(pod, node_info, spreads=spreads)
            left = subtracted(node_info.releasing_of_pods, pod.requests)
            node_info.releasing_of_pods = left
            some.append((node_info, pod))
        return some

    def _undo(self, some: NominatedPlaces) -> None:
        for node_info, pod in some:
            node_info.remove_shares(pod)
            node_info.releasing_of_pods = added(node_info.releasing_of_pods, pod.requests)


def _waiting(podgroup: PodGroupInfo) -> list[PodInfo]:
    return [
        pod
        for podset in podgroup.podsets
        for pod in sorted(podset.pods, key=pod_rank)
        if pod.state == "waiting"
    ]
