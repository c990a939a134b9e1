"""Shapes: what of a kin says where its pods may go. Equal ones are one row."""

from dataclasses import replace
from typing import Final

from scheduler.core.model import NONE, Shape
from scheduler.state.asks import Asks
from scheduler.state.kin import Kin
from scheduler.state.labels import Alternatives
from scheduler.state.nodes import NodeRows
from scheduler.state.ties import Ties

__all__ = ["Shapes"]


class Shapes:
    """The rows, made as they are asked for."""

    def __init__(self, kins: list[Kin], asks: Asks, nodes: NodeRows, ties: Ties) -> None:
        self._kins: Final = kins
        self._asks: Final = asks
        self._nodes: Final = nodes
        self._ties: Final = ties
        self._of_kin: Final[dict[int, Shape]] = {}
        self._row_of_kin: Final[dict[tuple[int, int], int]] = {}
        self._rows: Final[dict[Shape, int]] = {}
        self._tolerated: Final[dict[int, frozenset[int]]] = {}
        self._selected: Final[dict[int, tuple[Alternatives, ...]]] = {}

    def table(self) -> tuple[Shape, ...]:
        """Return all that were asked for."""
        return tuple(self._rows)

    def row(self, kin: int, nominated: int = NONE) -> int:
        """Return the row of a kin's pods; of those that a node was promised another one."""
        row = self._row_of_kin.get((kin, nominated))
        if row is None:
            shape = self._shape(kin)
            if nominated != NONE:
                shape = replace(shape, nominated=nominated)
            row = self._rows.setdefault(shape, len(self._rows))
            self._row_of_kin[kin, nominated] = row
        return row

    def _shape(self, number: int) -> Shape:
        shape = self._of_kin.get(number)
        if shape is None:
            shape = self._of_kin[number] = self._made(number)
        return shape

    def _made(self, number: int) -> Shape:
        kin = self._kins[number]
        cpu, memory, gpu = self._asks.counted[number].tolist()
        shares = self._asks.sharing.get(number)
        bonds = self._ties.neighbours.of(number)
        return Shape(
            request=tuple(self._asks.request[number].tolist()),
            counted=(cpu, memory, gpu),
            has_gpu=self._asks.has_gpu(number),
            tolerates=self._tolerates(kin),
            any_of=self._any_of(kin),
            takes=self._ties.ports.takes(number),
            avoids=self._ties.ports.avoids(number),
            **bonds._asdict(),
            claims=self._ties.claims.rows(kin, one_pod=False),
            own_claims=self._ties.claims.rows(kin, one_pod=True),
            devices=shares.devices if shares else 0,
            share=shares.thousandths if shares else 0,
        )

    def _tolerates(self, kin: Kin) -> frozenset[int]:
        found = self._tolerated.get(kin.spec_number)
        if found is None:
            found = self._nodes.taints.tolerated(kin.spec.tolerations)
            self._tolerated[kin.spec_number] = found
        return found

    def _any_of(self, kin: Kin) -> tuple[Alternatives, ...]:
        found = self._selected.get(kin.spec_number)
        if found is None:
            found = self._selected[kin.spec_number] = tuple(self._wishes(kin))
        return found + self._ties.claims.any_of(kin)

    def _wishes(self, kin: Kin) -> list[Alternatives]:
        spec, labels = kin.spec, self._nodes.labels
        wishes = [labels.of_map(spec.node_selector)] if spec.node_selector else []
        affinity = spec.affinity.node_affinity if spec.affinity else None
        if affinity is not None and affinity.required is not None:
            wishes.append(labels.of_selector(affinity.required))
        return wishes
