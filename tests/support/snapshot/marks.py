"""A mark of a snapshot or a plan: two are equal if and only if their marks are."""

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def mark(thing: Any) -> str:
    """Return a mark of a snapshot or a plan, the same in every process."""
    return hashlib.sha256("\n".join(_words(thing)).encode()).hexdigest()


def _words(thing: Any) -> list[str]:
    if isinstance(thing, np.ndarray):
        return [str(thing.dtype), str(thing.shape), thing.tobytes().hex()]
    if is_dataclass(thing):
        return [word for it in fields(thing) for word in _words(getattr(thing, it.name))]
    if isinstance(thing, frozenset):
        return sorted(word for it in thing for word in _words(it))
    if isinstance(thing, dict):
        return [word for it in thing.items() for word in _words(it)]  # in its order
    if isinstance(thing, tuple):
        return ["(", *(word for it in thing for word in _words(it)), ")"]
    return [repr(thing)]
