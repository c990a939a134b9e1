"""A total limit that owners share: when it is used up, the owner that uses most loses items.

So an owner that uses little keeps its items, whatever other owners do. Used for memory by
namespace, and for connections and request bodies by address.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

I = TypeVar("I", bound=Hashable)  # noqa: E741 - an item


class OwnerBudget(Generic[I]):
    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.total = 0
        self._items: dict[str, dict[I, int]] = {}  # by owner, the oldest first
        self._sums: dict[str, int] = {}

    def used_by(self, owner: str) -> int:
        return self._sums.get(owner, 0)

    def has_room(self, amount: int) -> bool:
        return self.total + amount <= self.limit

    def put(self, owner: str, item: I, amount: int) -> None:
        """Add an item, as the newest of its owner."""
        self.drop(owner, item)
        self._items.setdefault(owner, {})[item] = amount
        self._sums[owner] = self.used_by(owner) + amount
        self.total += amount

    def drop(self, owner: str, item: I) -> None:
        items = self._items.get(owner, {})
        amount = items.pop(item, 0)
        self.total -= amount
        if items:
            self._sums[owner] -= amount
        else:
            self._items.pop(owner, None)
            self._sums.pop(owner, None)

    def next_to_evict(self, above: int, may_evict: Callable[[I], bool]) -> tuple[str, I] | None:
        """Return an item of the owner that uses most, if that is more than *above*.

        It is the oldest item that *may_evict* accepts; an owner without such an item is skipped.
        """
        for owner in self._largest_first():
            if self._sums[owner] <= above:
                return None
            for item in self._items[owner]:
                if may_evict(item):
                    return owner, item
        return None

    def _largest_first(self) -> Iterable[str]:
        return sorted(self._sums, key=self._sums.__getitem__, reverse=True)
