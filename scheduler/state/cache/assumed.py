"""Assumed changes of pods and PodGroups: sent to the API server, and not seen yet.

A pod that gets shares of GPUs is labelled with the ids of these before it is bound. From the moment
when it is assumed to be bound until the bind is seen, it is shown with these labels and no other
ids, and its GPUs are in `Cluster.bind_gpu_groups`.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from scheduler.state.inputs import Cluster
from scheduler.state.pods.gpu_share_metadata import with_gpu_groups
from trainer_kai.api.interning import intern_labels
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import AVOIDED_NODES, EVICTED_BY, LINE, RESERVED
from trainer_kai.api.pod import TERMINAL_PHASES, Pod

_NEVER: Final = float("inf")
_IN_FLIGHT_S: Final = 15.0  # how long a write that was sent may take to be seen


class _AssumedChange(NamedTuple):
    uid: str
    value: str
    until_s: float = _NEVER  # without an end while it is being written
    meta: Meta | None = None  # of a pod that is bound, as it was when its node was chosen
    gpu_groups: tuple[str, ...] = ()  # of a pod that is bound: the ids of its shared GPUs
    labels: Mapping[str, str] | None = None  # with these ids; the same object all the time

    def with_metadata(self, meta: Meta) -> "_AssumedChange":
        if not self.gpu_groups:
            return self._replace(meta=meta)
        labels = with_gpu_groups(meta.labels, self.gpu_groups)
        if labels == self.labels:
            return self._replace(meta=meta)
        # The decoder's object for labels in the order in which the API server writes them.
        return self._replace(meta=meta, labels=intern_labels(dict(sorted(labels.items()))))


class AssumedChanges:
    """The writes by object, and what was seen of these objects.

    `apply_to_pod` and `apply_to_group` lay the writes over what is seen. After each change here
    the object is updated in the cache, by *update_pod* or *update_group*.
    """

    def __init__(
        self,
        cluster: Cluster,
        update_pod: Callable[[Key, Pod | None], object],
        update_group: Callable[[Key, PodGroup | None], object],
    ) -> None:
        """*cluster* has the objects with the assumed changes."""
        self._cluster: Final = cluster
        self._update_pod: Final = update_pod
        self._update_group: Final = update_group
        self._gpu_groups: Final = cluster.bind_gpu_groups
        self._seen_pods: Final[dict[Key, Pod]] = {}  # where a change is assumed
        self._seen_groups: Final[dict[Key, PodGroup]] = {}
        self._binds: Final[dict[Key, _AssumedChange]] = {}
        self._nominations: Final[dict[Key, _AssumedChange]] = {}
        self._reservations: Final[dict[Key, _AssumedChange]] = {}
        self._lines: Final[dict[Key, _AssumedChange]] = {}
        self._evictions: Final[dict[Key, _AssumedChange]] = {}
        self._eviction_records: Final[dict[Key, _AssumedChange]] = {}
        self._avoided_nodes: Final[dict[Key, _AssumedChange]] = {}

    def __len__(self) -> int:
        return sum(len(changes) for changes in self._all())

    def bind(self, pod: Key, node: str, gpu_groups: tuple[str, ...] = ()) -> None:
        """Assume that a pod is bound to a node, as it is now; with the ids of its shared GPUs."""
        meta = self._cluster.pods[pod].metadata
        change = _AssumedChange(meta.uid, node, gpu_groups=gpu_groups)
        self._binds[pod] = change.with_metadata(meta)
        self._refresh_pod(pod)

    def nominate(self, pod: Key, node: str) -> None:
        self._nominations[pod] = _AssumedChange(self._cluster.pods[pod].metadata.uid, node)
        self._refresh_pod(pod)

    def evict(self, pod: Key, uid: str, at: str) -> None:
        self._evictions[pod] = _AssumedChange(uid, at)
        self._refresh_pod(pod)

    def reserve(self, group: Key, text: str) -> None:
        """Assume that a PodGroup, if it exists, has this annotation of reserved places."""
        known = self._cluster.pod_groups.get(group)
        if known is not None:
            self._reservations[group] = _AssumedChange(known.metadata.uid, text)
            self._refresh_group(group)

    def set_line(self, group: Key, text: str) -> None:
        """Assume that a PodGroup, if it exists, has this place in the line."""
        known = self._cluster.pod_groups.get(group)
        if known is not None:
            self._lines[group] = _AssumedChange(known.metadata.uid, text)
            self._refresh_group(group)

    def forget_line(self, group: Key) -> None:
        if self._lines.pop(group, None) is not None:
            self._refresh_group(group)

    def record_eviction(self, group: PodGroup, text: str | None, until_s: float) -> None:
        """Assume that the eviction record of a PodGroup is written; None if it is removed."""
        key = group.metadata.key
        if text is None:
            self._eviction_records.pop(key, None)
        else:
            self._eviction_records[key] = _AssumedChange(group.metadata.uid, text, until_s)
        self._refresh_group(key)

    def avoid_nodes(self, group: Key, text: str, until_s: float = _NEVER) -> None:
        """Assume that a PodGroup, if it exists, has this annotation of avoided nodes."""
        known = self._cluster.pod_groups.get(group)
        if known is not None:
            self._avoided_nodes[group] = _AssumedChange(known.metadata.uid, text, until_s)
            self._refresh_group(group)

    def is_nominated(self, pod: Key) -> bool:
        return pod in self._nominations

    def bound_metadata(self, pod: Key) -> Meta | None:
        """Return the newest metadata of an assumed pod with the labels it was chosen by."""
        change = self._binds.get(pod)
        return change.meta if change else None

    def set_bound_metadata(self, pod: Key, meta: Meta) -> None:
        """Note how we changed a pod that is being bound: now it is to be bound in this version."""
        change = self._binds.get(pod)
        if change is not None and change.uid == meta.uid:
            self._binds[pod] = change.with_metadata(meta)
            self._refresh_pod(pod)

    def gpu_groups(self, pod: Key) -> tuple[str, ...]:
        change = self._binds.get(pod)
        return change.gpu_groups if change else ()

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

    def await_reservation(self, group: Key, until_s: float) -> None:
        self.await_seen(group, until_s)
        self._refresh_group(group)

    def limit_waits(self, now_s: float) -> None:
        """Limit the time of all writes in flight: this process does not learn their outcome."""
        for changes in self._all():
            for key, change in changes.items():
                changes[key] = change._replace(until_s=min(change.until_s, now_s + _IN_FLIGHT_S))

    def forget_bind(self, pod: Key) -> None:
        self._binds.pop(pod, None)
        self._refresh_pod(pod)

    def forget_nomination(self, pod: Key) -> None:
        self._nominations.pop(pod, None)
        self._refresh_pod(pod)

    def forget_eviction(self, pod: Key) -> None:
        self._evictions.pop(pod, None)
        self._refresh_pod(pod)

    def forget_reservation(self, group: Key) -> None:
        self._reservations.pop(group, None)
        self._refresh_group(group)

    def restore_reservation(self, group: Key, text: str | None) -> None:
        """Forget that places were released; *text* is the annotation before, if any."""
        if text is None or group not in self._cluster.pod_groups:
            self.forget_reservation(group)
        else:
            self.reserve(group, text)

    def forget_overdue(self, now_s: float) -> tuple[list[Key], list[Key]]:
        """Forget writes that were not seen in time; return their pods and PodGroups."""
        overdue: list[list[Key]] = []
        for changes in self._all():
            overdue.append([key for key, change in changes.items() if change.until_s <= now_s])
            for key in overdue[-1]:
                del changes[key]
        binds, nominations, reservations, evictions, records, lines, avoided = overdue
        pods = [*binds, *nominations, *evictions]
        groups = [*dict.fromkeys((*reservations, *lines, *records, *avoided))]
        for pod in pods:
            self._refresh_pod(pod)
        for group in groups:
            self._refresh_group(group)
        return pods, groups

    def seen_pod(self, key: Key) -> Pod | None:
        """Return a pod as it was seen, without assumed changes."""
        return self._seen_pods.get(key) or self._cluster.pods.get(key)

    def apply_to_pod(self, key: Key, seen: Pod | None) -> Pod | None:
        """Return a pod with the assumed writes; forget those that are seen."""
        shown = self._with_eviction(key, self._with_node(key, seen))
        if shown is seen or seen is None:
            self._seen_pods.pop(key, None)
        else:
            self._seen_pods[key] = seen
        return shown

    def apply_to_group(self, key: Key, seen: PodGroup | None) -> PodGroup | None:
        with_line = _with_annotation(self._lines, LINE, key, seen)
        with_reservation = _with_annotation(self._reservations, RESERVED, key, with_line)
        with_record = _with_annotation(self._eviction_records, EVICTED_BY, key, with_reservation)
        shown = _with_annotation(self._avoided_nodes, AVOIDED_NODES, key, with_record)
        if shown is seen or seen is None:
            self._seen_groups.pop(key, None)
        else:
            self._seen_groups[key] = seen
        return shown

    def _refresh_pod(self, key: Key) -> None:
        self._update_pod(key, self.seen_pod(key))

    def _refresh_group(self, key: Key) -> None:
        self._update_group(key, self._seen_groups.get(key) or self._cluster.pod_groups.get(key))

    def _with_node(self, key: Key, seen: Pod | None) -> Pod | None:
        bind = _current(self._binds, key, seen.metadata.uid if seen else "")
        nomination = _current(self._nominations, key, seen.metadata.uid if seen else "")
        if self._gpu_groups and (bind is None or seen is None or seen.spec.node_name):
            self._gpu_groups.pop(key, None)
        if seen is None:
            return None
        spec, status = seen.spec, seen.status
        if spec.node_name:
            self._binds.pop(key, None)
            self._nominations.pop(key, None)
            return seen
        if bind is not None:
            if bind.gpu_groups:
                self._gpu_groups[key] = bind.gpu_groups
            return msgspec.structs.replace(
                seen,
                metadata=self._as_chosen(key, bind, seen.metadata),
                spec=msgspec.structs.replace(spec, node_name=bind.value),
            )
        if nomination is not None and status.nominated_node_name == nomination.value:
            self._nominations.pop(key, None)
        elif nomination is not None:
            nominated = msgspec.structs.replace(status, nominated_node_name=nomination.value)
            return msgspec.structs.replace(seen, status=nominated)
        return seen

    def _as_chosen(self, key: Key, bind: _AssumedChange, seen: Meta) -> Meta:
        """Return the metadata with the labels and annotations by which the node was chosen."""
        chosen = bind.meta
        if chosen is None or (chosen.labels, chosen.annotations) == (seen.labels, seen.annotations):
            self._binds[key] = bind._replace(meta=seen)
            chosen = seen
            if bind.labels is None:
                return seen
        labels = chosen.labels if bind.labels is None else bind.labels
        return msgspec.structs.replace(seen, labels=labels, annotations=chosen.annotations)

    def _with_eviction(self, key: Key, seen: Pod | None) -> Pod | None:
        change = _current(self._evictions, key, seen.metadata.uid if seen else "")
        if seen is None or change is None:
            return seen
        if seen.metadata.deletion_timestamp or seen.status.phase in TERMINAL_PHASES:
            self._evictions.pop(key, None)
            return seen
        meta = msgspec.structs.replace(seen.metadata, deletion_timestamp=change.value)
        return msgspec.structs.replace(seen, metadata=meta)

    def _all(self) -> tuple[dict[Key, _AssumedChange], ...]:
        return (
            self._binds,
            self._nominations,
            self._reservations,
            self._evictions,
            self._eviction_records,
            self._lines,
            self._avoided_nodes,
        )


def _with_annotation(
    changes: dict[Key, _AssumedChange], name: str, key: Key, seen: PodGroup | None
) -> PodGroup | None:
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
