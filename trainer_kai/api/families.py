"""The families of pods that are remembered: those asked for last, within bounds; see `family`.

Learning costs more than parsing, so a family is learnt when a second pod begins as one before it
did, and again only after twice as many pods were not recognised: what keeps changing, or is alone
of its kind, costs next to nothing beside its parsing.
"""

from typing import Final

from trainer_kai.api.family import Family, Member
from trainer_kai.api.pod import PodSpec

__all__ = ["FAMILIES", "Families"]

_MARK_BYTES: Final = 96  # from the labels on, by which a family is looked up


class Families:
    """Families by how their labels begin, the one that was asked for last at the end."""

    MOST: Final = 1024
    MOST_TEXT_BYTES: Final = 1024 * 1024
    MOST_MEMBERS: Final = 4096  # of all families together: indexes and nodes
    MOST_SIGHTINGS: Final = 16_384

    def __init__(self) -> None:
        self._by_mark: dict[bytes, Family] = {}
        self.last: Family | None = None  # siblings come one after another
        self._sightings: dict[int, int] = {}  # how often a mark was not recognised
        self._text_bytes = 0
        self._members = 0

    def __len__(self) -> int:
        return len(self._by_mark)

    @property
    def text_bytes(self) -> int:
        """Return how long the texts of all families are."""
        return self._text_bytes

    def known(self) -> tuple[Family, ...]:
        """Return all families."""
        return tuple(self._by_mark.values())

    def find(self, data: bytes, labels_at: int) -> Family | None:
        """Return the family whose text up to the index is there."""
        mark = data[labels_at : labels_at + _MARK_BYTES]
        family = self._by_mark.pop(mark, None)
        if family is None:
            return None
        self._by_mark[mark] = family
        if not data.startswith(family.to_index, labels_at):
            return None
        self.last = family
        return family

    def is_due(self, data: bytes, labels_at: int) -> bool:
        """Count a pod that was not recognised, and say whether to learn from it."""
        mark = hash(data[labels_at : labels_at + _MARK_BYTES])
        seen = self._sightings.pop(mark, 0) + 1
        self._sightings[mark] = seen
        if len(self._sightings) > self.MOST_SIGHTINGS:
            del self._sightings[next(iter(self._sightings))]
        return seen > 1 and seen & (seen - 1) == 0

    def keep(self, family: Family, data: bytes, labels_at: int) -> None:
        """Remember a family, in place of those that nobody asked for the longest."""
        mark = data[labels_at : labels_at + _MARK_BYTES]
        if mark in self._by_mark:
            self._drop(mark)
        self._by_mark[mark] = family
        self._text_bytes += family.text_bytes
        while len(self._by_mark) > self.MOST or self._text_bytes > self.MOST_TEXT_BYTES:
            self._drop(next(iter(self._by_mark)))
        self.last = None

    def join(self, family: Family, index: bytes, member: Member) -> None:
        """Remember the labels and annotations of an index."""
        self._make_room()
        family.members[index] = member

    def place(self, family: Family, node: bytes, spec: PodSpec) -> None:
        """Remember the spec of a pod on a node."""
        self._make_room()
        family.nodes[node] = spec

    def disband(self, family: Family) -> None:
        """Forget the members of a family."""
        self._members = max(0, self._members - len(family.members) - len(family.nodes))
        family.members.clear()
        family.nodes.clear()

    def _drop(self, mark: bytes) -> None:
        family = self._by_mark.pop(mark)
        self._text_bytes -= family.text_bytes
        self.disband(family)

    def _make_room(self) -> None:
        """Count one more; where there are too many, forget all: each is made again when needed."""
        if self._members >= self.MOST_MEMBERS:
            for family in self._by_mark.values():
                family.members.clear()
                family.nodes.clear()
            self._members = 0
        self._members += 1


FAMILIES: Final = Families()
