"""Equal values become one object, so that ten thousand pods of a kind cost little memory.

What is shared is kept in bounded tables. What falls out of a table is not lost: it lives as long as
an object holds it, and its next equal is merely a second copy. Nothing shared is ever changed.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Protocol, TypeVar

import msgspec

from trainer_kai.api.meta import Condition, Meta, OwnerReference
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod, PodSpec

__all__ = [
    "NOTHING",
    "Stamped",
    "drop_volumes",
    "on_node",
    "one_of_finalizers",
    "one_of_owners",
    "one_set",
    "one_value",
    "share_conditions",
    "share_meta",
    "share_spec",
    "without_index",
    "without_node",
]

V = TypeVar("V")

NOTHING: Final[Mapping[str, str]] = {}

# What is worth a place in a table. What is larger is kept no longer than the object that has it:
# any user may write a megabyte of labels, owners or finalizers, and delete the object again.
_SMALL: Final = 253  # characters of a value
_MANY: Final = 64  # labels of a set
_FEW: Final = 8  # owners, finalizers
_MAX_SPECS: Final = 256
_MAX_SPEC_BYTES: Final = 16 * 1024
_set: Final = msgspec.structs.force_setattr
_copy: Final[Callable[[PodSpec], PodSpec]] = PodSpec.__copy__  # type: ignore[attr-defined]  # as copy()


class Stamped(Mapping[str, str]):
    """Labels of an Indexed Job's pods, which differ in nothing but the index of each pod."""

    __slots__ = ("_index", "_shared")

    def __init__(self, shared: Mapping[str, str], index: str) -> None:
        self._shared = shared
        self._index = index

    @property
    def shared(self) -> Mapping[str, str]:
        """Return the labels without their index."""
        return self._shared

    def __getitem__(self, name: str) -> str:
        return self._index if name == COMPLETION_INDEX else self._shared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shared)

    def __len__(self) -> int:
        return len(self._shared)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Stamped) and self._shared is other._shared:
            return self._index == other._index
        return isinstance(other, Mapping) and self._whole() == dict(other)

    def __hash__(self) -> int:
        raise TypeError("a set of labels is no key")

    def __repr__(self) -> str:
        return repr(self._whole())

    def _whole(self) -> dict[str, str]:
        return {**self._shared, COMPLETION_INDEX: self._index}


class _One(Protocol):
    def __call__(self, value: V, /) -> V: ...


def _first(value: V) -> V:
    return value


# Returns the first of all values equal to this one, which must be hashable. It is called for every
# pod, so the table itself is called and no function around it.
one_value: Final[_One] = lru_cache(maxsize=4096)(_first)


def one_set(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the first of all equal sets, unless it is too large to be kept.

    Of sets with a completion index one is kept for all indexes.
    """
    if not labels:
        return NOTHING
    if len(labels) > _MANY or max(map(len, labels.values())) > _SMALL:
        return labels
    index = labels.get(COMPLETION_INDEX)
    if index is None:
        return _set_of(tuple(labels.items()))
    shared = _set_of(tuple({**labels, COMPLETION_INDEX: ""}.items()))
    return Stamped(shared, one_value(index))


def one_of_owners(owners: tuple[OwnerReference, ...]) -> tuple[OwnerReference, ...]:
    """Return the first of all equal lists of owners, unless it is too large to be kept."""
    is_small = len(owners) <= _FEW and all(
        len(it.api_version) + len(it.kind) + len(it.name) + len(it.uid) <= 2 * _SMALL
        for it in owners
    )
    return one_value(owners) if is_small else owners


def one_of_finalizers(finalizers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first of all equal lists of finalizers, unless it is too large to be kept."""
    is_small = len(finalizers) <= _FEW and all(len(it) <= 2 * _SMALL for it in finalizers)
    return one_value(finalizers) if is_small else finalizers


def without_index(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return a set to which any index can be given by `Stamped`."""
    return labels.shared if isinstance(labels, Stamped) else labels


def share_meta(meta: Meta) -> None:
    """Let metadata that was just decoded, and that nobody has seen, share what it can."""
    _set(meta, "namespace", one_value(meta.namespace))
    _set(meta, "labels", one_set(meta.labels))
    _set(meta, "annotations", one_set(meta.annotations))
    _set(meta, "owner_references", one_of_owners(meta.owner_references))
    _set(meta, "finalizers", one_of_finalizers(meta.finalizers))


def drop_volumes(pod: Pod) -> None:
    """Drop the volumes that claim nothing from a pod that was just decoded."""
    stored = tuple(v for v in pod.spec.volumes if v.persistent_volume_claim or v.ephemeral)
    _set(pod.spec, "volumes", stored)


def share_spec(pod: Pod) -> None:
    """Let a pod that was just decoded share its spec."""
    drop_volumes(pod)
    node = pod.spec.node_name
    _set(pod.spec, "node_name", "")
    _set(pod, "spec", on_node(_one_spec(pod.spec), node))


def on_node(spec: PodSpec, node: str) -> PodSpec:
    """Return the spec of a pod without a node as that of one on a node."""
    if not node:
        return spec
    bound = _copy(spec)
    _set(bound, "node_name", one_value(node))
    return bound


def without_node(spec: PodSpec) -> PodSpec:
    """Return the spec of a pod on a node as that of one without."""
    if not spec.node_name:
        return spec
    unbound = _copy(spec)
    _set(unbound, "node_name", "")
    return unbound


def share_conditions(conditions: tuple[Condition, ...]) -> None:
    """Let conditions that were just decoded share their texts."""
    for condition in conditions:
        _set(condition, "type", one_value(condition.type))
        _set(condition, "status", one_value(condition.status))
        _set(condition, "last_transition_time", one_value(condition.last_transition_time))
        if condition.reason:
            _set(condition, "reason", one_value(condition.reason))
        if condition.message:
            _set(condition, "message", one_value(condition.message))


@lru_cache(maxsize=256)
def _set_of(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {one_value(name): one_value(value) for name, value in items}


_specs: dict[bytes, PodSpec] = {}  # the one that was asked for last at the end


def _one_spec(spec: PodSpec) -> PodSpec:
    text = msgspec.json.encode(spec)
    found = _specs.pop(text, spec)
    if len(text) <= _MAX_SPEC_BYTES:
        _specs[text] = found
    if len(_specs) > _MAX_SPECS:
        del _specs[next(iter(_specs))]
    return found
