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
_IN_FLIGHT_S: Final = 15.0  # as long as a write may take that was sent already, and be seen


class _AssumedChange(NamedTuple):
    """What was done to an object: a node for a pod, a text for a group."""

    uid: str
    value: str
    until_s: float = _NEVER  # while it is under way it holds, however long that takes
    meta: Meta | None = None  # of a pod that is bound: what it said, and in which version last


class AssumedChanges:
    """Deeds by object; who asks passes what was seen, and gets that with the deed done."""

    def __init__(self) -> None:
        self._binds: Final[dict[Key, _AssumedChange]] = {}
        self._nominations: Final[dict[Key, _AssumedChange]] = {}
        self._reservations: Final[dict[Key, _AssumedChange]] = {}
        self._evictions: Final[dict[Key, _AssumedChange]] = {}
        self._records: Final[dict[Key, _AssumedChange]] = {}

    def __len__(self) -> int:
        return sum(len(changes) for changes in self._all())

    def bind(self, pod: Key, meta: Meta, node: str) -> None:
        """Assume that a pod is on a node, as it is now."""
        self._binds[pod] = _AssumedChange(meta.uid, node, meta=meta)

    def nominate(self, pod: Key, uid: str, node: str) -> None:
        """Assume that a pod is promised a node."""
        self._nominations[pod] = _AssumedChange(uid, node)

    def reserve(self, group: Key, uid: str, text: str) -> None:
        """Assume that a group holds the slots of this annotation."""
        self._reservations[group] = _AssumedChange(uid, text)

    def record_eviction(self, group: Key, uid: str, text: str, until_s: float) -> None:
        """Wait for the record of an eviction that was written to be seen, but no longer."""
        self._records[group] = _AssumedChange(uid, text, until_s)

    def is_nominated(self, pod: Key) -> bool:
        """Say whether a pod is promised a node, and that is not seen yet."""
        return pod in self._nominations

    def evict(self, pod: Key, uid: str, at: str) -> None:
        """Assume that a pod is going, since a moment."""
        self._evictions[pod] = _AssumedChange(uid, at)

    def bound_metadata(self, pod: Key) -> Meta | None:
        """Return what a pod said that is assumed on a node, in the last version that says so."""
        change = self._binds.get(pod)
        return change.meta if change else None

    def evicted_uid(self, pod: Key) -> str:
        """Return the uid of the pod that is assumed to be going; "" for none."""
        change = self._evictions.get(pod)
        return change.uid if change else ""

    def await_seen(self, key: Key, until_s: float) -> None:
        """Wait for what was done to an object to be seen, but no longer."""
        for changes in self._all():
            change = changes.get(key)
            if change is not None and change.until_s == _NEVER:
                changes[key] = change._replace(until_s=until_s)

    def limit_waits(self, now_s: float) -> None:
        """Rely no longer on what is under way: nobody is there to hear what became of it."""
        for changes in self._all():
            for key, change in changes.items():
                changes[key] = change._replace(until_s=min(change.until_s, now_s + _IN_FLIGHT_S))

    def forget_bind(self, pod: Key) -> None:
        """Let a pod be where it is seen."""
        self._binds.pop(pod, None)

    def forget_nomination(self, pod: Key) -> None:
        """Let a pod be promised what is seen."""
        self._nominations.pop(pod, None)

    def forget_reservation(self, group: Key) -> None:
        """Let a group hold what is seen."""
        self._reservations.pop(group, None)

    def forget_record(self, group: Key) -> None:
        """Let a group say of an eviction what is seen."""
        self._records.pop(group, None)

    def forget_eviction(self, pod: Key) -> None:
        """Let a pod stay as it is seen."""
        self._evictions.pop(pod, None)

    def forget_overdue(self, now_s: float) -> tuple[list[Key], list[Key]]:
        """Forget what was done and not seen for too long; return the pods and the groups."""
        overdue: list[list[Key]] = []
        for changes in self._all():
            overdue.append([key for key, change in changes.items() if change.until_s <= now_s])
            for key in overdue[-1]:
                del changes[key]
        binds, nominations, reservations, evictions, records = overdue
        return [*binds, *nominations, *evictions], [*dict.fromkeys((*reservations, *records))]

    def apply_to_pod(self, key: Key, seen: Pod | None) -> Pod | None:
        """Return a pod with what was done to it; forget what is seen by now."""
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
        """Return what a pod said when a node was chosen for it."""
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
        """Return a group with what it holds, and what we recorded; forget what is seen by now."""
        with_reservation = _with_annotation(self._reservations, RESERVED, key, seen)
        return _with_annotation(self._records, EVICTED_BY, key, with_reservation)

    def _all(self) -> tuple[dict[Key, _AssumedChange], ...]:
        return self._binds, self._nominations, self._reservations, self._evictions, self._records


def _with_annotation(
    changes: dict[Key, _AssumedChange], name: str, key: Key, seen: PodGroup | None
) -> PodGroup | None:
    """Return a group with the annotation that was written."""
    change = _current(changes, key, seen.metadata.uid if seen else "")
    if seen is None or change is None:
        return seen
    meta = seen.metadata
    if meta.annotations.get(name, "") == change.value:
        if change.until_s != _NEVER:  # or it is about to become another
            del changes[key]
        return seen
    annotations = {**meta.annotations, name: change.value}
    return msgspec.structs.replace(
        seen, metadata=msgspec.structs.replace(meta, annotations=annotations)
    )


def _current(changes: dict[Key, _AssumedChange], key: Key, uid: str) -> _AssumedChange | None:
    """Return what was done to this very object; forget what was done to another of its name."""
    change = changes.get(key)
    if change is not None and change.uid != uid:
        del changes[key]
        return None
    return change


_RELOCATION_WAIT_S: Final = 300  # pods that have not come back by then find their room taken


def with_reserved_annotations(one: PlannedEviction, cluster: Cluster, now: int) -> PlannedEviction:
    """Return a departure with the annotations of the groups that move."""
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
    """Return what is to be known of each leaf; *pods* is one of each."""
    counts = Counter(place.podset for place in places)
    found = {}
    for podset in counts.keys() & pods.keys():
        try:
            like = anticipated_pod(pods[podset])
        except QuantityError:
            continue  # nobody can say what room that is
        labels = {name: text for name, text in like.labels.items() if name != COMPLETION_INDEX}
        like = msgspec.structs.replace(
            like, sub_group_prefix=podset, count=counts[podset], labels=labels
        )
        found[podset] = ReservedPodSet(until=until, like=like)
    return found


def _podgroup_key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.annotations.get(POD_GROUP, ""))


PlannedEvictions: TypeAlias = tuple[PlannedEviction, ...]


class InFlightEvictions:
    """By the group that gets their room; what is known of it is what *cluster* says."""

    def __init__(self, cluster: Cluster, options: Callable[[], StateOptions]) -> None:
        self._cluster: Final = cluster
        self._options: Final = options
        self._by_preemptor: dict[Key, PlannedEvictions] = {}
        # Groups of which it is not known yet whether they go, and the nodes of their slots.
        self._undecided: Final[dict[Key, frozenset[str]]] = {}

    def begin(self, preemptor: Key, evictions: PlannedEvictions, now: int) -> PlannedEvictions:
        """Take note of who has to go for a group; return who exactly that is."""
        found = tuple(
            [
                with_reserved_annotations(self.with_identity(eviction), self._cluster, now)
                for eviction in evictions
            ]
        )
        if found:
            self._by_preemptor[preemptor] = (*self._by_preemptor.get(preemptor, ()), *found)
            self._undecided.update(
                {
                    group: self._reserved_nodes(group)
                    for eviction in found
                    for group in eviction.groups
                }
            )
        return found

    def with_identity(self, eviction: PlannedEviction) -> PlannedEviction:
        """Return which pods that are, and whose: whoever has their names later is another."""
        pods = self._cluster.pods
        uids = tuple([pods[pod].metadata.uid if pod in pods else "" for pod in eviction.pods])
        owners = [self.owning_trainjob(group) for group in eviction.groups]
        return eviction._replace(uids=uids, owner=next(filter(None, owners), None))

    def is_undecided(self, commands: PodGroupCommands) -> bool:
        """Say whether it is not known yet if those go whose room, or whose own, it is about."""
        nodes = {node for _, node in commands.binds}
        return commands.group in self._undecided or any(
            not nodes.isdisjoint(reserved_places) for reserved_places in self._undecided.values()
        )

    def settle(self, evictions: Iterable[PlannedEviction]) -> None:
        """Take note that it is known of some whether they go."""
        for group in (group for eviction in evictions for group in eviction.groups):
            self._undecided.pop(group, None)

    def forget(self, preemptor: Key, evictions: PlannedEvictions) -> list[Key]:
        """Let some not go for a group; return whose pods that are."""
        remaining = tuple(
            [
                eviction
                for eviction in self._by_preemptor.pop(preemptor, ())
                if eviction not in evictions
            ]
        )
        if remaining:
            self._by_preemptor[preemptor] = remaining
        self.settle(evictions)
        return [pod for eviction in evictions for pod in eviction.pods]

    def clear(self) -> None:
        """Forget everybody: others decide from now on."""
        self._by_preemptor = {}
        self._undecided.clear()

    def current(self) -> Mapping[Key, PlannedEvictions]:
        """Return who is going; forget who is gone, and who does not go although it is due.

        Room of the latter is promised to nobody any more, so that nobody waits for it.
        """
        options = self._options()
        in_flight = {
            preemptor: tuple(
                [
                    eviction
                    for eviction in evictions
                    if self._is_any_terminating(eviction.pods, options)
                ]
            )
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
        """Say whether any of some pods is going, and expected to."""
        found = [self._cluster.pods[key].metadata for key in pods if key in self._cluster.pods]
        return any(
            meta.deletion_timestamp and termination_deadline(meta, options) >= options.now
            for meta in found
        )

    def owning_trainjob(self, group: Key) -> OwningTrainJob | None:
        """Return the TrainJob that a group is of, if there is one; else its pods go one by one.

        Of a JobSet that is not known, or is another of its name, the TrainJob has no name.
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
