"""Shapes: what of a kin says where its pods may go. Equal ones are one row."""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Ints, Shape
from scheduler.state.asks import Asks
from scheduler.state.claims import Claims
from scheduler.state.kin import Kin, Shaping
from scheduler.state.kins import Kins
from scheduler.state.labels import Alternatives, NodeLabels
from scheduler.state.neighbours import NeighbourRows
from scheduler.state.nodes import Taints
from scheduler.state.ports import Ports
from trainer_kai.api.pod import PodSpec

__all__ = ["Shapes", "Ties"]

_FEW: Final = 64  # unused ones are no matter


class Ties(NamedTuple):
    """What ties pods to nodes beyond what the nodes are."""

    neighbours: NeighbourRows
    ports: Ports
    claims: Claims


class Shapes:
    """The rows, made as they are asked for."""

    def __init__(
        self, nodes: tuple[NodeLabels, Taints], asks: Asks, ties: Ties, kins: Kins
    ) -> None:
        self._labels, self._taints = nodes
        self._kins: Final = kins
        self._asks: Final = asks
        self._neighbours, self._ports, self.claims = ties
        self._codes: Final = object()  # these and no others
        self._rows: Final[dict[Shape, int]] = {}
        self._shapes: Final[list[Shape]] = []
        self._like: Final[dict[tuple[object, ...], int]] = {}
        self._promised: Final[dict[tuple[int, int], int]] = {}
        self.row_of: Ints = np.zeros(0, dtype=np.int64)  # [kin]

    def __len__(self) -> int:
        return len(self._shapes)

    def are_mostly_unused(self, rows: NDArray[np.int32]) -> bool:
        """Say whether there are many more shapes than pods have; *rows* are those of pods."""
        used = int(np.count_nonzero(np.bincount(rows[rows != NONE])))
        return len(self) > 2 * used + _FEW

    def table(self) -> tuple[Shape, ...]:
        """Return all that were asked for."""
        return tuple(self._shapes)

    def forget(self, numbers: Ints, size: int) -> None:
        """Forget kin whose numbers others have, of so many that there may be."""
        if size > len(self.row_of):
            longer = np.full(size, NONE, dtype=np.int64)
            longer[: len(self.row_of)] = self.row_of
            self.row_of = longer
        self.row_of[numbers] = NONE

    def row(self, kin: Kin) -> int:
        """Return the row of a kin's pods."""
        row = int(self.row_of[kin.number])
        if row == NONE:
            row = self.row_of[kin.number] = self._row_like(kin)
        return row

    def promised(self, kin: Kin, node: int) -> int:
        """Return the row of a kin's pods that a node was promised to."""
        row = self.row(kin)
        found = self._promised.get((row, node))
        if found is None:
            found = self._enter(replace(self._shapes[row], nominated=node))
            self._promised[row, node] = found
        return found

    def _row_like(self, kin: Kin) -> int:
        """Return the row of a kin; making a shape is what takes time."""
        number = kin.number
        like = (
            kin.recipe,
            self._asks.sharing.get(number),
            kin.is_reservation,
            self._neighbours.of(number),
            number if kin.spec.volumes else NONE,  # of claims each has its own
            self._is_left_out(kin),
        )
        row = self._like.get(like)
        if row is None:
            row = self._enter(self._made(kin))
            if not kin.spec.volumes:
                self._like[like] = row
        return row

    def _enter(self, shape: Shape) -> int:
        row = self._rows.setdefault(shape, len(self._shapes))
        if row == len(self._shapes):
            self._shapes.append(shape)
        return row

    def _is_left_out(self, kin: Kin) -> bool:
        """Say whether pods say more than is looked at: they have what they have, and go nowhere."""
        return kin.recipe.excess is not None or bool(self._kins.is_left_out[kin.number])

    def _made(self, kin: Kin) -> Shape:
        asks, claims, number = self._asks, self.claims, kin.number
        cpu, memory, gpu = asks.counted[number].tolist()
        shares = asks.sharing.get(number)
        shape = Shape(
            request=tuple(asks.request[number].tolist()),
            counted=(cpu, memory, gpu),
            has_gpu=asks.has_gpu(number),
            takes=self._ports.takes(kin),
            **self._neighbours.of(number)._asdict(),
            claims=claims.rows(kin, one_pod=False),
            own_claims=claims.rows(kin, one_pod=True),
            devices=shares.devices if shares else 0,
            share=shares.thousandths if shares else 0,
        )
        if self._is_left_out(kin):
            return replace(shape, any_of=(self._labels.nowhere(),))
        shaping = kin.recipe.shaping(self._codes, self._shaping)
        return replace(
            shape,
            tolerates=shaping.tolerates,
            any_of=shaping.any_of + claims.any_of(kin),
            avoids=self._ports.avoids(kin),
            lacking=asks.lacking.get(number, ()),
        )

    def _shaping(self, spec: PodSpec) -> Shaping:
        tolerates = self._taints.tolerated(spec.tolerations)
        return Shaping(tolerates, tuple(self._wishes(spec)))

    def _wishes(self, spec: PodSpec) -> list[Alternatives]:
        labels = self._labels
        wishes = [labels.of_map(spec.node_selector)] if spec.node_selector else []
        affinity = spec.affinity.node_affinity if spec.affinity else None
        if affinity is not None and affinity.required is not None:
            wishes.append(labels.of_selector(affinity.required))
        return [wish for wish in wishes if () not in wish]  # all nodes satisfy the others
