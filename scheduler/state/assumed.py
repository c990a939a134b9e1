"""What we did and have not seen yet, laid over what watches tell until they tell it themselves.

    assumed ──done──▶ awaited ──seen──▶ gone
       │                 └──for too long──▶ forgotten: no watch says what became of it
       └──refused──▶ forgotten

Each is about one object of one uid: a successor of its name is met without anything. A pod that is
assumed on a node says what it said when it was chosen, until it is seen there or is forgotten: what
it says by then was judged for no node.
"""

from typing import Final, NamedTuple

import msgspec

from scheduler.state.news import TERMINAL_PHASES
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import EVICTED_BY, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup

__all__ = ["AssumedChanges"]

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
