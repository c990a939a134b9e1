"""What was sent to the API server and is not seen yet: assumed binds and in-flight evictions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.state.cache.cluster_events import TERMINAL_PHASES
from scheduler.state.commands import OwningTrainJob, PlannedEviction, PodGroupCommands
from scheduler.state.inputs import Cluster, StateOptions, format_timestamp
from scheduler.state.podgroups.attributes import controlling_trainjob
from scheduler.state.podgroups.missing_pods import podset_of
from scheduler.state.podgroups.podgroup import min_members
from scheduler.state.podgroups.reserved_annotation import (
    NamedPlace,
    ReservedPodSet,
    read_reserved,
    write_reserved,
)
from scheduler.state.pods.pod_table import termination_deadline
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import COMPLETION_INDEX, EVICTED_BY, POD_GROUP, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.quantity import QuantityError
from trainer_kai.api.resources import JOBSETS
from trainer_kai.policy.podgroups.anticipated import anticipated_pod

__all__ = [
    "AssumedChanges",
    "InFlightEvictions",
    "PlannedEvictions",
    "with_reserved_annotations",
]

_NEVER: Final = float("inf")
_IN_FLIGHT_S: Final = 15.0  # how long a write that was sent may take to be seen
_RELOCATION_WAIT_S: Final = 300  # pods that come back later have no reserved places

PlannedEvictions: TypeAlias = tuple[PlannedEviction, ...]


class _AssumedChange(NamedTuple):
    """A write to an object: the node of a pod, or an annotation of a PodGroup."""

    uid: str
    value: str
    until_s: float = _NEVER  # without an end while it is being written
    meta: Meta | None = None  # of a pod that is bound, as it was when its node was chosen


class AssumedChanges:
    """The writes by object; `apply_to_pod` and `apply_to_group` lay them over what was seen."""

    def __init__(self) -> None:
        self._binds: Final[dict[Key, _AssumedChange]] = {}
        self._nominations: Final[dict[Key, _AssumedChange]] = {}
        self._reservations: Final[dict[Key, _AssumedChange]] = {}
        self._evictions: Final[dict[Key, _AssumedChange]] = {}
        self._eviction_records: Final[dict[Key, _AssumedChange]] = {}

    def __len__(self) -> int:
        return sum(len(changes) for changes in self._all())

    def bind(self, pod: Key, meta: Meta, node: str) -> None:
        """Assume that a pod is bound to a node, as it is now."""
        self._binds[pod] = _AssumedChange(meta.uid, node, meta=meta)

    def nominate(self, pod: Key, uid: str, node: str) -> None:
        """Assume that a pod is nominated to a node."""
        self._nominations[pod] = _AssumedChange(uid, node)

    def reserve(self, group: Key, uid: str, text: str) -> None:
        """Assume that a PodGroup has this annotation of reserved places."""
        self._reservations[group] = _AssumedChange(uid, text)

    def record_eviction(self, group: Key, uid: str, text: str, until_s: float) -> None:
        """Assume the written record of an eviction until it is seen, or until *until_s*."""
        self._eviction_records[group] = _AssumedChange(uid, text, until_s)

    def is_nominated(self, pod: Key) -> bool:
        """Say whether a pod is nominated, and that is not seen yet."""
        return pod in self._nominations

    def evict(self, pod: Key, uid: str, at: str) -> None:
        """Assume that a pod is terminating since *at*."""
        self._evictions[pod] = _AssumedChange(uid, at)

    def bound_metadata(self, pod: Key) -> Meta | None:
        """Return the newest metadata of an assumed pod with the labels it was chosen by."""
        change = self._binds.get(pod)
        return change.meta if change else None

    def evicted_uid(self, pod: Key) -> str:
        """Return the uid of the pod that is assumed to terminate; "" for none."""
        change = self._evictions.get(pod)
        return change.uid if change else ""

    def await_seen(self, key: Key, until_s: float) -> None:
        """Assume the writes to an object until they are seen, or until *until_s*."""
        for changes in self._all():
            change = changes.get(key)
            if change is not None and change.until_s == _NEVER:
                changes[key] = change._replace(until_s=until_s)

    def limit_waits(self, now_s: float) -> None:
        """Limit the time of all writes in flight: this process does not learn their outcome."""
        for changes in self._all():
            for key, change in changes.items():
                changes[key] = change._replace(until_s=min(change.until_s, now_s + _IN_FLIGHT_S))

    def forget_bind(self, pod: Key) -> None:
        """Take a pod to be where it is seen."""
        self._binds.pop(pod, None)

    def forget_nomination(self, pod: Key) -> None:
        """Take the nomination of a pod as it is seen."""
        self._nominations.pop(pod, None)

    def forget_reservation(self, group: Key) -> None:
        """Take the reserved places of a PodGroup as they are seen."""
        self._reservations.pop(group, None)

    def forget_record(self, group: Key) -> None:
        """Take the eviction record of a PodGroup as it is seen."""
        self._eviction_records.pop(group, None)

    def forget_eviction(self, pod: Key) -> None:
        """Take a pod to terminate only when that is seen."""
        self._evictions.pop(pod, None)

    def forget_overdue(self, now_s: float) -> tuple[list[Key], list[Key]]:
        """Forget writes that were not seen in time; return their pods and PodGroups."""
        overdue: list[list[Key]] = []
        for changes in self._all():
            overdue.append([key for key, change in changes.items() if change.until_s <= now_s])
            for key in overdue[-1]:
                del changes[key]
        binds, nominations, reservations, evictions, records = overdue
        return [*binds, *nominations, *evictions], [*dict.fromkeys((*reservations, *records))]

    def apply_to_pod(self, key: Key, seen: Pod | None) -> Pod | None:
        """Return a pod with the assumed writes; forget those that are seen."""
        return self._with_eviction(key, self._with_node(key, seen))

    def _with_node(self, key: Key, seen: Pod | None) -> Pod | None:
        bind = _current(self._binds, key, seen.metadata.uid if seen else "")
        nomination = _current(self._nominations, key, seen.metadata.uid if seen else "")
        if seen is None:
            return None
        spec, status = seen.spec, seen.status
        if spec.node_name:
            self.forget_bind(key)
            self.forget_nomination(key)
            return seen
        if bind is not None:
            return msgspec.structs.replace(
                seen,
                metadata=self._as_chosen(key, bind, seen.metadata),
                spec=msgspec.structs.replace(spec, node_name=bind.value),
            )
        if nomination is not None and status.nominated_node_name == nomination.value:
            self.forget_nomination(key)
        elif nomination is not None:
            nominated = msgspec.structs.replace(status, nominated_node_name=nomination.value)
            return msgspec.structs.replace(seen, status=nominated)
        return seen

    def _as_chosen(self, key: Key, bind: _AssumedChange, seen: Meta) -> Meta:
        """Return the metadata with the labels and annotations by which the node was chosen."""
        chosen = bind.meta
        if chosen is None or (chosen.labels, chosen.annotations) == (seen.labels, seen.annotations):
            self._binds[key] = bind._replace(meta=seen)
            return seen
        return msgspec.structs.replace(seen, labels=chosen.labels, annotations=chosen.annotations)

    def _with_eviction(self, key: Key, seen: Pod | None) -> Pod | None:
        change = _current(self._evictions, key, seen.metadata.uid if seen else "")
        if seen is None or change is None:
            return seen
        if seen.metadata.deletion_timestamp or seen.status.phase in TERMINAL_PHASES:
            self.forget_eviction(key)
            return seen
        meta = msgspec.structs.replace(seen.metadata, deletion_timestamp=change.value)
        return msgspec.structs.replace(seen, metadata=meta)

    def apply_to_group(self, key: Key, seen: PodGroup | None) -> PodGroup | None:
        """Return a PodGroup with the assumed annotations; forget those that are seen."""
        with_reservation = _with_annotation(self._reservations, RESERVED, key, seen)
        return _with_annotation(self._eviction_records, EVICTED_BY, key, with_reservation)

    def _all(self) -> tuple[dict[Key, _AssumedChange], ...]:
        return (
            self._binds,
            self._nominations,
            self._reservations,
            self._evictions,
            self._eviction_records,
        )


def _with_annotation(
    changes: dict[Key, _AssumedChange], name: str, key: Key, seen: PodGroup | None
) -> PodGroup | None:
    """Return a PodGroup with the annotation that was written."""
    change = _current(changes, key, seen.metadata.uid if seen else "")
    if seen is None or change is None:
        return seen
    meta = seen.metadata
    if meta.annotations.get(name, "") == change.value:
        if change.until_s != _NEVER:  # else it is still being written
            del changes[key]
        return seen
    annotations = {**meta.annotations, name: change.value}
    return msgspec.structs.replace(
        seen, metadata=msgspec.structs.replace(meta, annotations=annotations)
    )


def _current(changes: dict[Key, _AssumedChange], key: Key, uid: str) -> _AssumedChange | None:
    """Return the write to the object of this uid; forget that to another of its name."""
    change = changes.get(key)
    if change is not None and change.uid != uid:
        del changes[key]
        return None
    return change


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

    def __init__(self, cluster: Cluster, options: Callable[[], StateOptions]) -> None:
        self._cluster: Final = cluster
        self._options: Final = options
        self._by_preemptor: dict[Key, PlannedEvictions] = {}
        # PodGroups whose eviction is not confirmed yet, and the nodes of their reserved places.
        self._undecided: Final[dict[Key, frozenset[str]]] = {}

    def begin(self, preemptor: Key, evictions: PlannedEvictions, now: int) -> PlannedEvictions:
        """Note evictions for a preemptor; return them with uids, owners and annotations."""
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

    def forget(self, preemptor: Key, evictions: PlannedEvictions) -> list[Key]:
        """Give up some evictions for a preemptor; return their pods."""
        known = self._by_preemptor.pop(preemptor, ())
        remaining = tuple([eviction for eviction in known if eviction not in evictions])
        if remaining:
            self._by_preemptor[preemptor] = remaining
        self.settle(evictions)
        return [pod for eviction in evictions for pod in eviction.pods]

    def clear(self) -> None:
        """Forget all evictions: another leader decides from now on."""
        self._by_preemptor = {}
        self._undecided.clear()

    def current(self) -> Mapping[Key, PlannedEvictions]:
        """Return the evictions whose pods terminate; forget those that are over or overdue.

        The room of overdue ones is not nominated any more, so that no PodGroup waits for it.
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
        for owner in owners:
            if owner.kind != JOBSETS.kind:
                continue
            jobset = self._cluster.jobsets.get(Key(group.namespace, owner.name))
            if jobset is None or jobset.metadata.uid != owner.uid:
                return OwningTrainJob(Key(group.namespace, ""), "")
            job = controlling_trainjob(jobset, self._cluster.trainjobs)
            if job is not None:
                return OwningTrainJob(job.metadata.key, job.metadata.uid)
        return None
