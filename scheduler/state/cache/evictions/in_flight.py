"""In-flight evictions: decided, sent, and not over yet."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from scheduler.state.cache.assumed import AssumedChanges
from scheduler.state.commands import OwningTrainJob, PlannedEviction, PodGroupCommands
from scheduler.state.inputs import Cluster, StateOptions, format_timestamp
from scheduler.state.podgroups.attributes import controlling_trainjob, owning_jobset
from scheduler.state.podgroups.missing_pods import podset_of
from scheduler.state.podgroups.podgroup import min_members
from scheduler.state.podgroups.reserved_annotation import (
    NamedPlace,
    ReservedPodSet,
    read_reserved,
    write_reserved,
)
from scheduler.state.pods.pod_table import termination_deadline
from trainer_kai.api.meta import Key
from trainer_kai.api.names import COMPLETION_INDEX, POD_GROUP, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.api.resources import JOBSETS
from trainer_kai.policy.podgroups.anticipated import anticipated_pod

_RELOCATION_WAIT_S: Final = 300  # pods that come back later have no reserved places

PlannedEvictions: TypeAlias = tuple[PlannedEviction, ...]


def with_reserved_annotations(one: PlannedEviction, cluster: Cluster, now: int) -> PlannedEviction:
    """Return an eviction with the annotations of the PodGroups that are relocated."""
    pods = [cluster.pods[key] for key in one.pods if key in cluster.pods]
    until, annotations = format_timestamp(now + _RELOCATION_WAIT_S), []
    for key, places in one.places:
        group = cluster.pod_groups.get(key)
        if group is not None:
            minimums = min_members(group)
            pods_by_podset = {
                podset_of(pod, minimums): pod for pod in pods if _podgroup_key(pod) == key
            }
            annotations.append(
                (key, write_reserved(places, _reserved_podsets(pods_by_podset, places, until)))
            )
    return one._replace(reserved_annotations=tuple(annotations))


def _reserved_podsets(
    pods: Mapping[str, Pod], places: Iterable[NamedPlace], until: str
) -> dict[str, ReservedPodSet]:
    """Return what the annotation says of each PodSet; *pods* has one pod of each."""
    counts = Counter(place.podset for place in places)
    reserved_podsets = {}
    for podset in counts.keys() & pods.keys():
        try:
            like = anticipated_pod(pods[podset])
        except QuantityError:
            continue  # its requests cannot be read
        labels = {name: text for name, text in like.labels.items() if name != COMPLETION_INDEX}
        like = msgspec.structs.replace(
            like, sub_group_prefix=podset, count=counts[podset], labels=labels
        )
        reserved_podsets[podset] = ReservedPodSet(until=until, like=like)
    return reserved_podsets


def _podgroup_key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.annotations.get(POD_GROUP, ""))


class InFlightEvictions:
    """Evictions that were begun, by preemptor; *cluster* says which pods terminate."""

    def __init__(
        self, cluster: Cluster, assumed: AssumedChanges, options: Callable[[], StateOptions]
    ) -> None:
        self._cluster: Final = cluster
        self._assumed: Final = assumed
        self._options: Final = options
        self._by_preemptor: dict[Key, PlannedEvictions] = {}
        # PodGroups with an unconfirmed eviction, and the nodes of their reserved places.
        self._undecided: Final[dict[Key, frozenset[str]]] = {}

    def begin(self, preemptor: Key, evictions: PlannedEvictions, now: int) -> PlannedEvictions:
        """Assume evictions for a preemptor; return them with uids, owners and annotations."""
        begun = tuple(
            [
                with_reserved_annotations(self.with_identity(eviction), self._cluster, now)
                for eviction in evictions
            ]
        )
        if begun:
            self._by_preemptor[preemptor] = (*self._by_preemptor.get(preemptor, ()), *begun)
            for group in (group for eviction in begun for group in eviction.groups):
                self._undecided[group] = self._reserved_nodes(group)
        at = format_timestamp(now)
        for eviction in begun:
            for group, text in eviction.reserved_annotations:
                self._assumed.reserve(group, text)
            for pod, uid in zip(eviction.pods, eviction.uids, strict=True):
                self._assumed.evict(pod, uid, at)
        return begun

    def with_identity(self, eviction: PlannedEviction) -> PlannedEviction:
        """Return an eviction with the uids of its pods and with the owning TrainJob."""
        pods = self._cluster.pods
        uids = tuple([pods[pod].metadata.uid if pod in pods else "" for pod in eviction.pods])
        owners = [self.owning_trainjob(group) for group in eviction.groups]
        return eviction._replace(uids=uids, owner=next(filter(None, owners), None))

    def is_undecided(self, commands: PodGroupCommands) -> bool:
        """Say whether the commands depend on an eviction that is not confirmed yet."""
        nodes = {node for _, node in commands.binds}
        return commands.group in self._undecided or any(
            not nodes.isdisjoint(reserved_places) for reserved_places in self._undecided.values()
        )

    def settle(self, evictions: Iterable[PlannedEviction]) -> None:
        """Note that some evictions are confirmed or given up."""
        for group in (group for eviction in evictions for group in eviction.groups):
            self._undecided.pop(group, None)

    def forget(self, preemptor: Key, evictions: PlannedEvictions) -> None:
        """Give up some evictions for a preemptor."""
        known = self._by_preemptor.pop(preemptor, ())
        remaining = tuple([eviction for eviction in known if eviction not in evictions])
        if remaining:
            self._by_preemptor[preemptor] = remaining
        self.settle(evictions)
        for pod in (pod for eviction in evictions for pod in eviction.pods):
            self._assumed.forget_eviction(pod)
        self.forget_places(evictions)

    def forget_places(self, evictions: PlannedEvictions) -> None:
        """Forget the places that are reserved for the PodGroups that some evictions relocate."""
        for group in (group for one in evictions for group, _ in one.reserved_annotations):
            self._assumed.forget_reservation(group)

    def clear(self) -> None:
        """Forget all evictions: another leader decides from now on."""
        self._by_preemptor = {}
        self._undecided.clear()

    def current(self) -> Mapping[Key, PlannedEvictions]:
        """Return the evictions with terminating pods; forget evictions that are over or overdue.

        What overdue ones would free is not nominated any more, so that no PodGroup waits for it.
        """
        options = self._options()
        in_flight = {
            preemptor: tuple([it for it in evictions if self._is_any_terminating(it.pods, options)])
            for preemptor, evictions in self._by_preemptor.items()
        }
        self._by_preemptor = {
            preemptor: evictions for preemptor, evictions in in_flight.items() if evictions
        }
        return dict(self._by_preemptor)

    def _reserved_nodes(self, group: Key) -> frozenset[str]:
        known = self._cluster.pod_groups.get(group)
        reserved = read_reserved(known.metadata.annotations.get(RESERVED, "")) if known else {}
        return frozenset(
            place.node
            for reserved_places in ({} if isinstance(reserved, str) else reserved).values()
            for place in reserved_places
        )

    def _is_any_terminating(self, pods: Iterable[Key], options: StateOptions) -> bool:
        """Say whether any of some pods terminates, and is expected to end in time."""
        present = [self._cluster.pods[key].metadata for key in pods if key in self._cluster.pods]
        return any(
            meta.deletion_timestamp and termination_deadline(meta, options) >= options.now
            for meta in present
        )

    def owning_trainjob(self, group: Key) -> OwningTrainJob | None:
        """Return the TrainJob that owns a PodGroup; None if its pods are evicted one by one.

        If the JobSet is not known, or another one has its name, the TrainJob has no name.
        """
        known = self._cluster.pod_groups.get(group)
        owners = known.metadata.owner_references if known else ()
        if all(owner.kind != JOBSETS.kind for owner in owners):
            return None
        jobset = owning_jobset(known, self._cluster.jobsets)
        if jobset is None:
            return OwningTrainJob(Key(group.namespace, ""), "")
        job = controlling_trainjob(jobset, self._cluster.trainjobs)
        return OwningTrainJob(job.metadata.key, job.metadata.uid) if job is not None else None
