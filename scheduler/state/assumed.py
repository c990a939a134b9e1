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

from scheduler.state.news import OVER
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import EVICTED_BY, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup

__all__ = ["Assumed"]

_NEVER: Final = float("inf")
_LEFT_S: Final = 15.0  # as long as a write may take that was sent already, and be seen


class _Deed(NamedTuple):
    """What was done to an object: a node for a pod, a text for a group."""

    uid: str
    value: str
    until_s: float = _NEVER  # while it is under way it holds, however long that takes
    meta: Meta | None = None  # of a pod that is bound: what it said, and in which version last


class Assumed:
    """Deeds by object; who asks passes what was seen, and gets that with the deed done."""

    def __init__(self) -> None:
        self._binds: Final[dict[Key, _Deed]] = {}
        self._promises: Final[dict[Key, _Deed]] = {}
        self._texts: Final[dict[Key, _Deed]] = {}
        self._evictions: Final[dict[Key, _Deed]] = {}
        self._records: Final[dict[Key, _Deed]] = {}

    def __len__(self) -> int:
        return sum(len(deeds) for deeds in self._all())

    def bind(self, pod: Key, meta: Meta, node: str) -> None:
        """Assume that a pod is on a node, as it is now."""
        self._binds[pod] = _Deed(meta.uid, node, meta=meta)

    def promise(self, pod: Key, uid: str, node: str) -> None:
        """Assume that a pod is promised a node."""
        self._promises[pod] = _Deed(uid, node)

    def hold(self, group: Key, uid: str, text: str) -> None:
        """Assume that a group holds the slots of this annotation."""
        self._texts[group] = _Deed(uid, text)

    def record(self, group: Key, uid: str, text: str, until_s: float) -> None:
        """Wait for the record of an eviction that was written to be seen, but no longer."""
        self._records[group] = _Deed(uid, text, until_s)

    def promises(self, pod: Key) -> bool:
        """Say whether a pod is promised a node, and that is not seen yet."""
        return pod in self._promises

    def evict(self, pod: Key, uid: str, at: str) -> None:
        """Assume that a pod is going, since a moment."""
        self._evictions[pod] = _Deed(uid, at)

    def bound_as(self, pod: Key) -> Meta | None:
        """Return what a pod said that is assumed on a node, in the last version that says so."""
        deed = self._binds.get(pod)
        return deed.meta if deed else None

    def whose_eviction(self, pod: Key) -> str:
        """Return the uid of the pod that is assumed to be going; "" for none."""
        deed = self._evictions.get(pod)
        return deed.uid if deed else ""

    def done(self, key: Key, until_s: float) -> None:
        """Wait for what was done to an object to be seen, but no longer."""
        for deeds in self._all():
            deed = deeds.get(key)
            if deed is not None and deed.until_s == _NEVER:
                deeds[key] = deed._replace(until_s=until_s)

    def leave(self, now_s: float) -> None:
        """Rely no longer on what is under way: nobody is there to hear what became of it."""
        for deeds in self._all():
            for key, deed in deeds.items():
                deeds[key] = deed._replace(until_s=min(deed.until_s, now_s + _LEFT_S))

    def forget_bind(self, pod: Key) -> None:
        """Let a pod be where it is seen."""
        self._binds.pop(pod, None)

    def forget_promise(self, pod: Key) -> None:
        """Let a pod be promised what is seen."""
        self._promises.pop(pod, None)

    def forget_hold(self, group: Key) -> None:
        """Let a group hold what is seen."""
        self._texts.pop(group, None)

    def forget_record(self, group: Key) -> None:
        """Let a group say of an eviction what is seen."""
        self._records.pop(group, None)

    def forget_eviction(self, pod: Key) -> None:
        """Let a pod stay as it is seen."""
        self._evictions.pop(pod, None)

    def overdue(self, now_s: float) -> tuple[list[Key], list[Key]]:
        """Forget what was done and not seen for too long; return the pods and the groups."""
        late: list[list[Key]] = []
        for deeds in self._all():
            late.append([key for key, deed in deeds.items() if deed.until_s <= now_s])
            for key in late[-1]:
                del deeds[key]
        binds, promises, texts, evictions, records = late
        return [*binds, *promises, *evictions], [*dict.fromkeys((*texts, *records))]

    def pod(self, key: Key, seen: Pod | None) -> Pod | None:
        """Return a pod with what was done to it; forget what is seen by now."""
        return self._going(key, self._placed(key, seen))

    def _placed(self, key: Key, seen: Pod | None) -> Pod | None:
        bind = _standing(self._binds, key, seen.metadata.uid if seen else "")
        promise = _standing(self._promises, key, seen.metadata.uid if seen else "")
        if seen is None:
            return None
        spec, status = seen.spec, seen.status
        if spec.node_name:
            self.forget_bind(key)
            self.forget_promise(key)
            return seen
        if bind is not None:
            return msgspec.structs.replace(
                seen,
                metadata=self._as_chosen(key, bind, seen.metadata),
                spec=msgspec.structs.replace(spec, node_name=bind.value),
            )
        if promise is not None and status.nominated_node_name == promise.value:
            self.forget_promise(key)
        elif promise is not None:
            promised = msgspec.structs.replace(status, nominated_node_name=promise.value)
            return msgspec.structs.replace(seen, status=promised)
        return seen

    def _as_chosen(self, key: Key, bind: _Deed, seen: Meta) -> Meta:
        """Return what a pod said when a node was chosen for it."""
        was = bind.meta
        if was is None or (was.labels, was.annotations) == (seen.labels, seen.annotations):
            self._binds[key] = bind._replace(meta=seen)
            return seen
        return msgspec.structs.replace(seen, labels=was.labels, annotations=was.annotations)

    def _going(self, key: Key, seen: Pod | None) -> Pod | None:
        deed = _standing(self._evictions, key, seen.metadata.uid if seen else "")
        if seen is None or deed is None:
            return seen
        if seen.metadata.deletion_timestamp or seen.status.phase in OVER:
            self.forget_eviction(key)
            return seen
        meta = msgspec.structs.replace(seen.metadata, deletion_timestamp=deed.value)
        return msgspec.structs.replace(seen, metadata=meta)

    def group(self, key: Key, seen: PodGroup | None) -> PodGroup | None:
        """Return a group with what it holds, and what we recorded; forget what is seen by now."""
        told = _written(self._texts, RESERVED, key, seen)
        return _written(self._records, EVICTED_BY, key, told)

    def _all(self) -> tuple[dict[Key, _Deed], ...]:
        return self._binds, self._promises, self._texts, self._evictions, self._records


def _written(
    deeds: dict[Key, _Deed], name: str, key: Key, seen: PodGroup | None
) -> PodGroup | None:
    """Return a group with the annotation that was written."""
    deed = _standing(deeds, key, seen.metadata.uid if seen else "")
    if seen is None or deed is None:
        return seen
    meta = seen.metadata
    if meta.annotations.get(name, "") == deed.value:
        if deed.until_s != _NEVER:  # or it is about to become another
            del deeds[key]
        return seen
    annotations = {**meta.annotations, name: deed.value}
    return msgspec.structs.replace(
        seen, metadata=msgspec.structs.replace(meta, annotations=annotations)
    )


def _standing(deeds: dict[Key, _Deed], key: Key, uid: str) -> _Deed | None:
    """Return what was done to this very object; forget what was done to another of its name."""
    deed = deeds.get(key)
    if deed is not None and deed.uid != uid:
        del deeds[key]
        return None
    return deed
