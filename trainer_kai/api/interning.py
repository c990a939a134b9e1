"""Interning: equal values become one object, so that ten thousand pods need little memory.

The tables of interned values are bounded. A value that falls out of its table stays alive as long
as an object holds it; the next equal value is then a second copy. Interned values are immutable.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Protocol, TypeVar

import msgspec

from trainer_kai.api.meta import Condition, Meta, OwnerReference
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod, PodSpec

V = TypeVar("V")

NO_LABELS: Final[Mapping[str, str]] = {}

# Limits of values that are interned. Larger values live only as long as their object: any user can
# write a megabyte of labels, owners or finalizers, and delete the object again.
_MAX_VALUE_LENGTH: Final = 253  # characters of a value
_MAX_LABELS: Final = 64  # labels of a set
_MAX_REFERENCES: Final = 8  # owners, finalizers
_MAX_SPECS: Final = 256
_MAX_SPEC_BYTES: Final = 16 * 1024
_force_set: Final = msgspec.structs.force_setattr
_copy: Final[Callable[[PodSpec], PodSpec]] = PodSpec.__copy__  # type: ignore[attr-defined]  # as copy()


class IndexedLabels(Mapping[str, str]):
    """The labels of a pod of an Indexed Job; such pods differ only in the completion index."""

    __slots__ = ("_index", "_shared")

    def __init__(self, shared: Mapping[str, str], index: str) -> None:
        self._shared = shared
        self._index = index

    @property
    def shared(self) -> Mapping[str, str]:
        return self._shared

    def __getitem__(self, name: str) -> str:
        return self._index if name == COMPLETION_INDEX else self._shared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shared)

    def __len__(self) -> int:
        return len(self._shared)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IndexedLabels) and self._shared is other._shared:
            return self._index == other._index
        return isinstance(other, Mapping) and self._as_dict() == dict(other)

    def __hash__(self) -> int:
        raise TypeError("labels cannot be hashed")

    def __repr__(self) -> str:
        return repr(self._as_dict())

    def _as_dict(self) -> dict[str, str]:
        return {**self._shared, COMPLETION_INDEX: self._index}


class _Intern(Protocol):
    def __call__(self, value: V, /) -> V: ...


def _same(value: V) -> V:
    return value


# Returns the first of all equal values, which must be hashable. It is called for each pod, so the
# table itself is called, without a function around it.
intern_value: Final[_Intern] = lru_cache(maxsize=4096)(_same)


def intern_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Of sets with a completion index, one is kept for all indexes."""
    if not labels:
        return NO_LABELS
    if len(labels) > _MAX_LABELS or max(map(len, labels.values())) > _MAX_VALUE_LENGTH:
        return labels
    index = labels.get(COMPLETION_INDEX)
    if index is None:
        return _interned_labels(tuple(labels.items()))
    shared = _interned_labels(tuple({**labels, COMPLETION_INDEX: ""}.items()))
    return IndexedLabels(shared, intern_value(index))


def intern_owners(owners: tuple[OwnerReference, ...]) -> tuple[OwnerReference, ...]:
    is_small = len(owners) <= _MAX_REFERENCES and all(
        len(it.api_version) + len(it.kind) + len(it.name) + len(it.uid) <= 2 * _MAX_VALUE_LENGTH
        for it in owners
    )
    return intern_value(owners) if is_small else owners


def intern_finalizers(finalizers: tuple[str, ...]) -> tuple[str, ...]:
    is_small = len(finalizers) <= _MAX_REFERENCES and all(
        len(it) <= 2 * _MAX_VALUE_LENGTH for it in finalizers
    )
    return intern_value(finalizers) if is_small else finalizers


def labels_without_index(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return labels from which `IndexedLabels` makes those of any index."""
    return labels.shared if isinstance(labels, IndexedLabels) else labels


def intern_meta(meta: Meta) -> None:
    """Intern the parts of metadata that was just decoded and is not used yet."""
    _force_set(meta, "namespace", intern_value(meta.namespace))
    _force_set(meta, "labels", intern_labels(meta.labels))
    _force_set(meta, "annotations", intern_labels(meta.annotations))
    _force_set(meta, "owner_references", intern_owners(meta.owner_references))
    _force_set(meta, "finalizers", intern_finalizers(meta.finalizers))


def drop_unclaimed_volumes(pod: Pod) -> None:
    stored = tuple(v for v in pod.spec.volumes if v.persistent_volume_claim or v.ephemeral)
    _force_set(pod.spec, "volumes", stored)


def intern_spec(pod: Pod) -> None:
    drop_unclaimed_volumes(pod)
    node = pod.spec.node_name
    _force_set(pod.spec, "node_name", "")
    _force_set(pod, "spec", spec_on_node(_intern_pod_spec(pod.spec), node))


def spec_on_node(spec: PodSpec, node: str) -> PodSpec:
    if not node:
        return spec
    bound = _copy(spec)
    _force_set(bound, "node_name", intern_value(node))
    return bound


def spec_without_node(spec: PodSpec) -> PodSpec:
    if not spec.node_name:
        return spec
    unbound = _copy(spec)
    _force_set(unbound, "node_name", "")
    return unbound


def intern_conditions(conditions: tuple[Condition, ...]) -> None:
    for condition in conditions:
        _force_set(condition, "type", intern_value(condition.type))
        _force_set(condition, "status", intern_value(condition.status))
        _force_set(condition, "last_transition_time", intern_value(condition.last_transition_time))
        if condition.reason:
            _force_set(condition, "reason", intern_value(condition.reason))
        if condition.message:
            _force_set(condition, "message", intern_value(condition.message))


@lru_cache(maxsize=256)
def _interned_labels(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {intern_value(name): intern_value(value) for name, value in items}


_specs: dict[bytes, PodSpec] = {}  # the least recently used first


def _intern_pod_spec(spec: PodSpec) -> PodSpec:
    text = msgspec.json.encode(spec)
    known = _specs.pop(text, spec)
    if len(text) <= _MAX_SPEC_BYTES:
        _specs[text] = known
    if len(_specs) > _MAX_SPECS:
        del _specs[next(iter(_specs))]
    return known
