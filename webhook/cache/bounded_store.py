"""Objects by key, as many as fit into a limit of bytes.

An object that does not fit is left out, and is read from the API server when a review needs it. A
full store leaves out objects of the namespace that uses most; never cluster-scoped objects, since
only administrators write those. So no namespace loses objects because of another namespace.
"""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from trainer_kai.api.meta import Key
from trainer_kai.owner_budget import OwnerBudget

OBJECT_BYTES: Final = 1_200  # measured: an entry, or a replicatedJob, without its texts
V = TypeVar("V")


class BoundedStore(Generic[V]):
    """Values by key, bounded each and in sum."""

    def __init__(self, max_bytes: int, max_value_bytes: int) -> None:
        self._max_value_bytes: Final = max_value_bytes
        self._values: Final[dict[Key, V]] = {}
        self._budget: Final = OwnerBudget[Key](max_bytes)
        self._left_out: Final[set[Key]] = set()

    def put(self, key: Key, value: V, size: int) -> None:
        """Put a value of *size* bytes, if it fits."""
        self.drop(key)
        if size <= self._max_value_bytes and self._make_room(key.namespace, size):
            self._values[key] = value
            self._budget.put(key.namespace, key, size)
        else:
            self._left_out.add(key)

    def drop(self, key: Key) -> None:
        """Forget a key."""
        self._left_out.discard(key)
        if self._values.pop(key, None) is not None:
            self._budget.drop(key.namespace, key)

    def get(self, key: Key) -> V | None:
        """Return a value; None if the key is unknown or left out."""
        return self._values.get(key)

    @property
    def held_bytes(self) -> int:
        """Return how many bytes the values have."""
        return self._budget.total

    @property
    def left_out(self) -> int:
        """Return how many objects are left out."""
        return len(self._left_out)

    def __len__(self) -> int:
        return len(self._values)

    def _make_room(self, namespace: str, size: int) -> bool:
        while not self._budget.has_room(size):
            needed = self._budget.used_by(namespace) + size
            evicted = self._budget.next_to_evict(needed, lambda key: bool(key.namespace))
            if evicted is None:
                return False
            self.drop(evicted[1])
            self._left_out.add(evicted[1])
        return True


def text_bytes(texts: Iterable[str]) -> int:
    """Return how many bytes texts take at most."""
    return sum(len(it) * (1 if it.isascii() else 4) for it in texts)
