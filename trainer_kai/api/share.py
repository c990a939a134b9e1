"""Equal values become one object, so that ten thousand pods of a kind cost little memory.

What is shared is kept in bounded tables. What falls out of a table is not lost: it lives as long as
an object holds it, and its next equal is merely a second copy. Nothing shared is ever changed.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

import msgspec

from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.pod import Pod, PodSpec

__all__ = [
    "NOTHING",
    "Stamped",
    "on_node",
    "one_set",
    "one_text_each",
    "one_value",
    "share_conditions",
    "share_meta",
    "share_spec",
    "without_node",
]

V = TypeVar("V")

NOTHING: Final[Mapping[str, str]] = {}

_SMALL: Final = 253  # characters of a value that is worth a place in a table
_set: Final = msgspec.structs.force_setattr


class Stamped(Mapping[str, str]):
    """Labels of an Indexed Job's pods, which differ in nothing but the index of each pod."""

    __slots__ = ("_index", "_shared")

    def __init__(self, shared: Mapping[str, str], index: str) -> None:
        self._shared = shared
        self._index = index

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
    """Return the first of all equal sets, unless it holds texts that are too long to be kept."""
    if not labels:
        return NOTHING
    if max(map(len, labels.values())) > _SMALL:
        return labels
    return _set_of(tuple(labels.items()))


def one_text_each(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return an equal set whose names and values are shared, though the set is not."""
    return {
        one_value(name): one_value(value) if len(value) <= _SMALL else value
        for name, value in labels.items()
    }


def share_meta(meta: Meta) -> None:
    """Let metadata that was just decoded, and that nobody has seen, share what it can."""
    _set(meta, "namespace", one_value(meta.namespace))
    _set(meta, "labels", one_set(meta.labels))
    _set(meta, "annotations", one_set(meta.annotations))
    _set(meta, "owner_references", one_value(meta.owner_references))
    _set(meta, "finalizers", one_value(meta.finalizers))


def share_spec(pod: Pod) -> None:
    """Let a pod that was just decoded share its spec; volumes that claim nothing are dropped."""
    spec = pod.spec
    node = spec.node_name
    _set(spec, "node_name", "")
    stored = tuple(v for v in spec.volumes if v.persistent_volume_claim or v.ephemeral)
    _set(spec, "volumes", stored)
    _set(pod, "spec", on_node(_spec_of(msgspec.json.encode(spec)), node))


def on_node(spec: PodSpec, node: str) -> PodSpec:
    """Return the spec of a pod without a node as that of one on a node."""
    if not node:
        return spec
    bound = copy(spec)
    _set(bound, "node_name", one_value(node))
    return bound


def without_node(spec: PodSpec) -> PodSpec:
    """Return the spec of a pod on a node as that of one without."""
    if not spec.node_name:
        return spec
    unbound = copy(spec)
    _set(unbound, "node_name", "")
    return unbound


def share_conditions(conditions: tuple[Condition, ...]) -> None:
    """Let conditions that were just decoded share their texts."""
    for condition in conditions:
        for field in condition.__struct_fields__:
            _set(condition, field, one_value(getattr(condition, field)))


@lru_cache(maxsize=256)
def _set_of(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return one_text_each(dict(items))


@lru_cache(maxsize=256)
def _spec_of(text: bytes) -> Any:
    return msgspec.json.decode(text, type=PodSpec)
