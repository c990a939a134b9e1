"""The nodes for the pods of one signature, best score first, updated node by node.

Scores stand in rows of a few dozen nodes, and the best of each row is known, so that finding the
best of all and changing one cost the square root of the number of nodes and hardly anything.
"""

import math
from typing import Final

import numpy as np

from scheduler.core.model.plugins import NodeFeatures, Policies
from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.predicates import (
    fits_empty_node,
    has_no_relations,
    passes_dynamic,
    pods_until_skewed,
)
from scheduler.core.nodes.statement import Statement, has_enough

__all__ = ["NodeRanking", "ScoredResource"]

_RESCORE_ALL_RATIO: Final = (
    8  # a part of the nodes that are looked at again one by one, not all at once
)


class ScoredResource:
    """What all pods that count the same resource see of nodes: GPUs, or else CPU."""

    def __init__(self, snapshot: Snapshot, *, has_gpu: bool) -> None:
        resources, allocatable = snapshot.resources, snapshot.nodes.allocatable
        self.columns: Final = list(resources.gpus) if has_gpu else [resources.cpu]
        self.allocatable: Final[Ints] = allocatable[:, self.columns].sum(axis=1)
        self.has_gpu: Final = allocatable[:, list(resources.gpus)].sum(axis=1) > 0
        self.allocatable_list: Final[list[int]] = self.allocatable.tolist()
        self.has_gpu_list: Final[list[bool]] = self.has_gpu.tolist()
        self.max_allocatable: Final = max(self.allocatable_list, default=0)


class NodeRanking:
    """Where pods of a shape can go."""

    def __init__(
        self, statement: Statement, policies: Policies, signature: int, ground: ScoredResource
    ) -> None:
        self.signature: Final = statement.snapshot.signatures[signature]
        self._row: Final = signature
        self._statement: Final = statement
        self._policies: Final = policies
        self._scored_resource: Final = ground
        self.fits_empty: Final = fits_empty_node(statement.snapshot, self.signature)
        self._requests: Final = tuple((r, n) for r, n in enumerate(self.signature.request) if n)
        self.has_no_relations: Final = has_no_relations(self.signature)
        self._open = self.fits_empty  # to which no other pod closes the way
        count = len(self.fits_empty)
        width = max(1, math.isqrt(count))
        self._width: Final = width
        self._scores = np.full(-(-count // width) * width, -math.inf)
        self._rows = self._scores.reshape(-1, width)
        self._tops = self._rows.max(axis=1) if count else np.full(1, -math.inf)
        self._score_cache: Final[
            dict[NodeFeatures, float]
        ] = {}  # how much a node is liked that looks so
        self._seen = 0
        self._relation_changes = 0
        self._rescore_all()

    def best(self) -> int:
        """Return the best node, or NONE."""
        self._refresh()
        row = int(self._tops.argmax())
        if self._tops[row] == -math.inf:
            return NONE
        return row * self._width + int(self._rows[row].argmax())

    def pods_in_a_row(self, node: int, most: int) -> int:
        """Return how many of so many equal pods the best node gets, one by one, before another.

        Of pods that mind each other no more than keep open what is open. All of them fit into what
        is idle, or none does.
        """
        if not self.has_no_relations:
            most = int(min(most, self._pods_while_open(node)))
        if most == 1:
            return 1
        idle, room = self._statement.idle[node], self._statement.free[node]
        fitting = min([most, *(int(room[r]) // n for r, n in self._requests)])
        before = np.arange(fitting)
        is_idle = [idle[r] - before * n >= n for r, n in self._requests]
        ground, request = self._scored_resource, self.signature.request
        seats = NodeFeatures(
            free=room[ground.columns].sum() - before * sum([request[r] for r in ground.columns]),
            allocatable=ground.allocatable_list[node],
            max_allocatable=ground.max_allocatable,
            fits_idle=np.logical_and.reduce([before >= 0, *is_idle]),
            has_gpu=ground.has_gpu_list[node],
            is_nominated=node == self.signature.nominated_node,
        )
        score, (other, next_score) = self._score(seats), self._second_best(node)
        is_last = score <= next_score if other < node else score < next_score
        is_last = is_last | (seats.fits_idle != seats.fits_idle[0])
        return int(is_last.argmax()) if is_last.any() else fitting

    def _pods_while_open(self, node: int) -> float:
        """Return how many more pods leave all nodes open and closed that are so with the last one.

        What pods say of each other asks whether one is there, so that only the first one changes
        it; a spread asks how many are.
        """
        if not self._statement.was_last_allocated(node, self._row):
            return 1
        return pods_until_skewed(self._statement, self.signature, node)

    def _second_best(self, node: int) -> tuple[int, float]:
        """Return which node would be the best without the best one, and how much it is liked."""
        at, place = divmod(node, self._width)
        was, self._rows[at, place] = self._rows[at, place], -math.inf
        tops = self._tops.copy()
        tops[at] = self._rows[at].max()
        row = int(tops.argmax())
        found = row * self._width + int(self._rows[row].argmax()), float(tops[row])
        self._rows[at, place] = was
        return found

    def fits(self, node: int) -> bool:
        """Say whether a node would do."""
        self._refresh()
        return bool(self._scores[node] != -math.inf)

    def _refresh(self) -> None:
        moves = self._statement.changed_nodes
        if self._seen == len(moves):
            return
        is_out_of_date = (
            not self.has_no_relations and self._relation_changes != self._statement.relation_changes
        )
        if is_out_of_date or (len(moves) - self._seen) * _RESCORE_ALL_RATIO > len(self.fits_empty):
            self._rescore_all()
            return
        for node in set(moves[self._seen :]):
            self._rescore(node)
        self._seen = len(moves)

    def _rescore_all(self) -> None:
        statement = self._statement
        self._seen, self._relation_changes = (
            len(statement.changed_nodes),
            statement.relation_changes,
        )
        if not len(self.fits_empty):
            return
        open_to_it = None if self.has_no_relations else passes_dynamic(statement, self.signature)
        self._open = self.fits_empty if open_to_it is None else self.fits_empty & open_to_it
        columns = [r for r, _ in self._requests]
        request = np.array([n for _, n in self._requests])
        mask = self._open & (statement.free[:, columns] >= request).all(axis=1)
        seats = NodeFeatures(
            free=statement.free[:, self._scored_resource.columns].sum(axis=1),
            allocatable=self._scored_resource.allocatable,
            max_allocatable=self._scored_resource.max_allocatable,
            fits_idle=(statement.idle[:, columns] >= request).all(axis=1),
            has_gpu=self._scored_resource.has_gpu,
            is_nominated=np.equal(np.arange(len(mask)), self.signature.nominated_node),
        )
        self._scores[: len(mask)] = np.where(mask, self._score(seats), -math.inf)
        self._tops = self._rows.max(axis=1)

    def _rescore(self, node: int) -> None:
        if not self._open[node]:
            return
        room = self._statement.free[node].tolist()
        score = -math.inf
        if has_enough(room, self._requests):
            idle = self._statement.idle[node].tolist()
            ground = self._scored_resource
            seats = NodeFeatures(
                free=sum([room[r] for r in ground.columns]),
                allocatable=ground.allocatable_list[node],
                max_allocatable=ground.max_allocatable,
                fits_idle=has_enough(idle, self._requests),
                has_gpu=ground.has_gpu_list[node],
                is_nominated=node == self.signature.nominated_node,
            )
            if seats not in self._score_cache:
                self._score_cache[seats] = self._score(seats)
            score = self._score_cache[seats]
        row = node // self._width
        was, top = self._scores[node], self._tops[row]
        self._scores[node] = score
        if score >= top:
            self._tops[row] = score
        elif was == top:
            self._tops[row] = self._rows[row].max()

    def _score(self, seats: NodeFeatures) -> float:
        """Return how much the nodes are liked: of all of them an array, of one a number."""
        liking: float = sum(
            [w * score(self.signature, seats) for w, score in self._policies.scores]
        )
        return liking
