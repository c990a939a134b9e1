"""The nodes for the pods of one signature, best score first, updated node by node.

Scores stand in rows of a few dozen nodes, and the best of each row is known, so that finding the
best of all and changing one cost the square root of the number of nodes and hardly anything.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.core.model.resources import NONE, Bools, Ints, ResourceKind
from scheduler.core.model.result import NodeFeatures, Policies, ScoreValue
from scheduler.core.model.snapshot import GpuMode, Snapshot
from scheduler.core.nodes.predicates import (
    fits_empty_node,
    has_no_relations,
    passes_dynamic,
    pods_until_skewed,
)
from scheduler.core.nodes.statement import Statement, has_enough

_GPU: Final = ResourceKind.GPU
_RESCORE_ALL_RATIO: Final = 8  # up to this part of the nodes is rescored one by one


@dataclass(frozen=True, eq=False, slots=True)
class NodeSubset:
    """Some nodes, to which pods are restricted beside all that their own specs say.

    In one plan equal keys mean equal nodes: what is computed for a subset is cached by its key.
    """

    key: tuple[int, ...]
    mask: Bools | None  # [node]; None is all nodes

    def within(self, nodes: Bools) -> Bools:
        return nodes if self.mask is None else nodes & self.mask


ALL_NODES: Final = NodeSubset((), None)


class MemorySubsets:
    """For pods that request memory of GPUs: the nodes with larger GPUs than those before."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Final = snapshot
        self._larger = ALL_NODES

    def subset_of(self, signature: int) -> NodeSubset:
        is_by_memory = self._snapshot.signatures[signature].least_queue_request is not None
        return self._larger if is_by_memory else ALL_NODES

    def exclude_smallest(self, nodes: Iterable[int]) -> None:
        """Exclude all nodes with GPUs that are not larger than the smallest of some nodes."""
        memory = self._snapshot.nodes.gpu_memory
        least = min([int(memory[node]) for node in nodes])
        self._larger = NodeSubset((least,), memory > least)


class ScoredResource:
    """What nodes have of the resource that scores count: GPUs, or else CPU."""

    def __init__(self, snapshot: Snapshot, *, has_gpu: bool) -> None:
        resources, allocatable = snapshot.resources, snapshot.nodes.allocatable
        self.columns: Final = list(resources.gpus) if has_gpu else [resources.cpu]
        self.allocatable: Final[Ints] = allocatable[:, self.columns].sum(axis=1)
        offered = allocatable[:, [r for r, it in enumerate(resources.kinds) if it == _GPU]]
        self.has_gpu: Final = offered.any(axis=1) | (snapshot.nodes.gpu_mode != GpuMode.WHOLE)
        self.allocatable_list: Final[list[int]] = self.allocatable.tolist()
        self.has_gpu_list: Final[list[bool]] = self.has_gpu.tolist()
        self.max_allocatable: Final = max(self.allocatable_list, default=0)


class NodeRanking:
    def __init__(
        self,
        statement: Statement,
        policies: Policies,
        signature: int,
        scored_resource: ScoredResource,
        subset: NodeSubset = ALL_NODES,
    ) -> None:
        self.signature: Final = statement.snapshot.signatures[signature]
        self.row: Final = signature
        self._statement: Final = statement
        self._policies: Final = policies
        self._scored_resource: Final = scored_resource
        self.fits_empty: Final = subset.within(fits_empty_node(statement.snapshot, self.signature))
        self._has_shares: Final = self.signature.shared_devices > 0
        self._requests: Final = tuple((r, n) for r, n in enumerate(self.signature.request) if n)
        self.has_no_relations: Final = has_no_relations(self.signature)
        self._open = self.fits_empty  # and that no other pod closes
        count = len(self.fits_empty)
        width = max(1, math.isqrt(count))
        self._width: Final = width
        self._scores = np.full(-(-count // width) * width, -math.inf)
        self.rows = self._scores.reshape(-1, width)
        self._tops = self.rows.max(axis=1) if count else np.full(1, -math.inf)
        self._score_cache: Final[dict[NodeFeatures, float]] = {}
        self._seen = 0
        self._relation_changes = 0
        self._rescore_all()

    def best(self) -> int:
        self._refresh()
        row = int(self._tops.argmax())
        if self._tops[row] == -math.inf:
            return NONE
        return row * self._width + int(self.rows[row].argmax())

    def pods_in_a_row(self, node: int, most: int) -> int:
        """Return how many equal pods the best node gets, one by one, before another node is best.

        Of pods with relations to each other, no more than leave all nodes open that are open. All
        of them fit into what is idle, or none does.
        """
        if self._has_shares:
            return 1
        if not self.has_no_relations:
            most = int(min(most, self._pods_while_open(node)))
        if most == 1:
            return 1
        idle, free = self._statement.idle[node], self._statement.free[node]
        fitting = min([most, *(int(free[r]) // n for r, n in self._requests)])
        before = np.arange(fitting)
        is_idle = [idle[r] - before * n >= n for r, n in self._requests]
        scored_resource, request = self._scored_resource, self.signature.request
        features = NodeFeatures(
            free=free[scored_resource.columns].sum()
            - before * sum([request[r] for r in scored_resource.columns]),
            allocatable=scored_resource.allocatable_list[node],
            max_allocatable=scored_resource.max_allocatable,
            fits_idle=np.logical_and.reduce([before >= 0, *is_idle]),
            has_gpu=scored_resource.has_gpu_list[node],
            is_nominated=node == self.signature.nominated_node,
        )
        score, (other, next_score) = self._score(features), self._second_best(node)
        is_last = score <= next_score if other < node else score < next_score
        is_last = is_last | (features.fits_idle != features.fits_idle[0])
        return int(is_last.argmax()) if is_last.any() else fitting

    def _pods_while_open(self, node: int) -> float:
        """Return how many more pods leave all nodes as open or closed as with the last one.

        Affinity, ports and claims ask whether a pod is there, so that only the first one changes
        them; a spread asks how many are there.
        """
        if not self._statement.was_last_allocated(node, self.row):
            return 1
        return pods_until_skewed(self._statement, self.signature, node)

    def _second_best(self, node: int) -> tuple[int, float]:
        at, place = divmod(node, self._width)
        was, self.rows[at, place] = self.rows[at, place], -math.inf
        tops = self._tops.copy()
        tops[at] = self.rows[at].max()
        row = int(tops.argmax())
        found = row * self._width + int(self.rows[row].argmax()), float(tops[row])
        self.rows[at, place] = was
        return found

    def fits(self, node: int) -> bool:
        self._refresh()
        return bool(self._scores[node] != -math.inf)

    def _refresh(self) -> None:
        changed_nodes = self._statement.changed_nodes
        if self._seen == len(changed_nodes):
            return
        is_relation_changed = (
            not self.has_no_relations and self._relation_changes != self._statement.relation_changes
        )
        if is_relation_changed or (len(changed_nodes) - self._seen) * _RESCORE_ALL_RATIO > len(
            self.fits_empty
        ):
            self._rescore_all()
            return
        for node in set(changed_nodes[self._seen :]):
            self._rescore(node)
        self._seen = len(changed_nodes)

    def _rescore_all(self) -> None:
        statement = self._statement
        self._seen = len(statement.changed_nodes)
        self._relation_changes = statement.relation_changes
        if not len(self.fits_empty):
            return
        passing = None if self.has_no_relations else passes_dynamic(statement, self.signature)
        self._open = self.fits_empty if passing is None else self.fits_empty & passing
        columns = [r for r, _ in self._requests]
        request = np.array([n for _, n in self._requests])
        mask = self._open & (statement.free[:, columns] >= request).all(axis=1)
        fits_idle = (statement.idle[:, columns] >= request).all(axis=1)
        shares_gpu: ScoreValue = 0
        if self._has_shares:
            fits, fits_now, shares_gpu = statement.devices.fits_on_nodes(
                self.row, statement.free, statement.idle
            )
            mask, fits_idle = mask & fits, fits_idle & fits_now
            shares_gpu = shares_gpu & fits_idle
        features = NodeFeatures(
            free=statement.free[:, self._scored_resource.columns].sum(axis=1),
            allocatable=self._scored_resource.allocatable,
            max_allocatable=self._scored_resource.max_allocatable,
            fits_idle=fits_idle,
            has_gpu=self._scored_resource.has_gpu,
            is_nominated=np.equal(np.arange(len(mask)), self.signature.nominated_node),
            shares_gpu=shares_gpu,
        )
        self._scores[: len(mask)] = np.where(mask, self._score(features), -math.inf)
        self._tops = self.rows.max(axis=1)

    def _rescore(self, node: int) -> None:
        if not self._open[node]:
            return
        free = self._statement.free[node].tolist()
        score = -math.inf
        fits, fits_idle, shares_gpu = has_enough(free, self._requests), False, False
        if fits:
            idle = self._statement.idle[node].tolist()
            fits_idle = has_enough(idle, self._requests)
            if self._has_shares:
                fits, fits_now, has_shared = self._statement.devices.fits(
                    self.row, node, free, idle
                )
                fits_idle = fits_idle and fits_now
                shares_gpu = has_shared and fits_idle
        if fits:
            scored_resource = self._scored_resource
            features = NodeFeatures(
                free=sum([free[r] for r in scored_resource.columns]),
                allocatable=scored_resource.allocatable_list[node],
                max_allocatable=scored_resource.max_allocatable,
                fits_idle=fits_idle,
                has_gpu=scored_resource.has_gpu_list[node],
                is_nominated=node == self.signature.nominated_node,
                shares_gpu=shares_gpu,
            )
            if features not in self._score_cache:
                self._score_cache[features] = self._score(features)
            score = self._score_cache[features]
        row = node // self._width
        was, top = self._scores[node], self._tops[row]
        self._scores[node] = score
        if score >= top:
            self._tops[row] = score
        elif was == top:
            self._tops[row] = self.rows[row].max()

    def _score(self, features: NodeFeatures) -> float:
        """Return the score: an array for all nodes, or a number for one node."""
        weighted: float = sum(
            [w * score(self.signature, features) for w, score in self._policies.scores]
        )
        return weighted
