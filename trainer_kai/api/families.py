"""The families of pods that are remembered: those asked for last, within bounds; see `family`.

Learning costs more than parsing, so a family is learnt when a second pod begins as one before it
did, and again only after twice as many pods were not recognised: what keeps changing, or is alone
of its kind, costs next to nothing beside its parsing.
"""

from typing import Final

from trainer_kai.api.family import LabelsAndAnnotations, PodTextTemplate
from trainer_kai.api.pod import PodSpec

__all__ = ["TEMPLATES", "PodTextTemplates"]

_MARK_BYTES: Final = 96  # from the labels on, by which a family is looked up


class PodTextTemplates:
    """Families by how their labels begin, the one that was asked for last at the end."""

    MOST: Final = 1024
    MOST_TEXT_BYTES: Final = 1024 * 1024
    MOST_MEMBERS: Final = 4096  # of all families together: indexes and nodes
    MOST_SIGHTINGS: Final = 16_384

    def __init__(self) -> None:
        self._by_mark: dict[bytes, PodTextTemplate] = {}
        self.last: PodTextTemplate | None = None  # siblings come one after another
        self._sightings: dict[int, int] = {}  # how often a mark was not recognised
        self._text_bytes = 0
        self._variants = 0

    def __len__(self) -> int:
        return len(self._by_mark)

    @property
    def text_bytes(self) -> int:
        """Return how long the texts of all families are."""
        return self._text_bytes

    def all(self) -> tuple[PodTextTemplate, ...]:
        """Return all families."""
        return tuple(self._by_mark.values())

    def find(self, data: bytes, labels_at: int) -> PodTextTemplate | None:
        """Return the family whose text up to the index is there."""
        key = data[labels_at : labels_at + _MARK_BYTES]
        template = self._by_mark.pop(key, None)
        if template is None:
            return None
        self._by_mark[key] = template
        if not data.startswith(template.to_index, labels_at):
            return None
        self.last = template
        return template

    def should_learn(self, data: bytes, labels_at: int) -> bool:
        """Count a pod that was not recognised, and say whether to learn from it."""
        key = hash(data[labels_at : labels_at + _MARK_BYTES])
        seen = self._sightings.pop(key, 0) + 1
        self._sightings[key] = seen
        if len(self._sightings) > self.MOST_SIGHTINGS:
            del self._sightings[next(iter(self._sightings))]
        return seen > 1 and seen & (seen - 1) == 0

    def add(self, template: PodTextTemplate, data: bytes, labels_at: int) -> None:
        """Remember a family, in place of those that nobody asked for the longest."""
        key = data[labels_at : labels_at + _MARK_BYTES]
        if key in self._by_mark:
            self._drop(key)
        self._by_mark[key] = template
        self._text_bytes += template.text_bytes
        while len(self._by_mark) > self.MOST or self._text_bytes > self.MOST_TEXT_BYTES:
            self._drop(next(iter(self._by_mark)))
        self.last = None

    def add_index(
        self, template: PodTextTemplate, index: bytes, labels_and_annotations: LabelsAndAnnotations
    ) -> None:
        """Remember the labels and annotations of an index."""
        self._make_room()
        template.by_index[index] = labels_and_annotations

    def add_node(self, template: PodTextTemplate, node: bytes, spec: PodSpec) -> None:
        """Remember the spec of a pod on a node."""
        self._make_room()
        template.by_node[node] = spec

    def clear_variants(self, template: PodTextTemplate) -> None:
        """Forget the members of a family."""
        self._variants = max(0, self._variants - len(template.by_index) - len(template.by_node))
        template.by_index.clear()
        template.by_node.clear()

    def _drop(self, key: bytes) -> None:
        template = self._by_mark.pop(key)
        self._text_bytes -= template.text_bytes
        self.clear_variants(template)

    def _make_room(self) -> None:
        """Count one more; where there are too many, forget all: each is made again when needed."""
        if self._variants >= self.MOST_MEMBERS:
            for template in self._by_mark.values():
                template.by_index.clear()
                template.by_node.clear()
            self._variants = 0
        self._variants += 1


TEMPLATES: Final = PodTextTemplates()
