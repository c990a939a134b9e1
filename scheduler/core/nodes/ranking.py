"""The nodes for the pods of one signature, best score first, updated node by node.

Scores stand in rows of a few dozen nodes, and the best of each row is known, so that finding the
best of all and changing one cost the square root of the number of nodes and hardly anything.
"""

import math
from typing import Final

import numpy as np

from scheduler.core.model.resources import NONE, Ints, ResourceKind
from scheduler.core.model.result import NodeFeatures, Policies, ScoreValue
from scheduler.core.model.snapshot import GpuMode, Snapshot
from scheduler.core.nodes.node_resources import has_enough
from scheduler.core.nodes.pod_relations import has_no_relations
from scheduler.core.nodes.predicates import fits_empty_node
from scheduler.core.nodes.strategies.domains import tie_breaks
from scheduler.core.nodes.strategies.fragmentation import Fragments
from scheduler.core.nodes.strategies.strategy import ALL_NODES, NodeSubset
from scheduler.core.nodes.working_nodes import WorkingNodes

_GPU: Final = ResourceKind.GPU
_RESCORE_ALL_RATIO: Final = 8  # up to this part of the nodes is rescored one by one


class ScoredResource:
    """What nodes have of the resource that scores count: GPUs, or else CPU."""

    def __init__(self, snapshot: Snapshot, policies: Policies, *, has_gpu: bool) -> None:
        resources, allocatable = snapshot.resources, snapshot.nodes.allocatable
        self.columns: Final = list(resources.gpus) if has_gpu else [resources.cpu]
        self.allocatable: Final[Ints] = allocatable[:, self.columns].sum(axis=1)
        offered = allocatable[:, [r for r, it in enumerate(resources.kinds) if it == _GPU]]
        self.has_gpu: Final = offered.any(axis=1) | (snapshot.nodes.gpu_mode != GpuMode.WHOLE)
        self.allocatable_list: Final[list[int]] = self.allocatable.tolist()
        self.has_gpu_list: Final[list[bool]] = self.has_gpu.tolist()
        self.max_allocatable: Final = max(self.allocatable_list, default=0)
        # Added to the scores, [node]: of equal nodes, those in fuller domains come first.
        breaks_ties = policies.places_by_topology
        self.tie_breaks: Final = tie_breaks(snapshot, self.columns) if breaks_ties else None


class NodeRanking:
    def __init__(
        self,
        nodes: WorkingNodes,
        policies: Policies,
        signature: int,
        scored_resource: ScoredResource,
        subset: NodeSubset = ALL_NODES,
    ) -> None:
        self.signature: Final = nodes.snapshot.signatures[signature]
        self.row: Final = signature
        self.subset: Final = subset
        self._preference: Final = (
            scored_resource.tie_breaks if subset.preference is None else subset.preference
        )
        self._resources: Final = nodes.resources
        self._relations: Final = nodes.relations
        self._devices: Final = nodes.devices.of[signature]
        self._statement: Final = nodes.statement
        self._policies: Final = policies
        is_minded = policies.minds_fragments[self.signature.has_gpu]
        self._fragments: Final = nodes.fragments if is_minded else None
        self._scored_resource: Final = scored_resource
        self.fits_empty: Final = subset.within(fits_empty_node(nodes.snapshot, self.signature))
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
        if self._devices:
            return 1
        if not self.has_no_relations:
            most = int(min(most, self._pods_while_open(node)))
        if most == 1:
            return 1
        idle, free = self._resources.idle[node], self._resources.free[node]
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
        if self._fragments is not None:
            ranks = self._fragments.ranks_in_a_row(self.row, node, before)
            features = features._replace(fragment_rank=ranks)
        score, (other, next_score) = self._score(features), self._second_best(node)
        if self._preference is not None:
            score += self._preference[node]
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
        return self._relations.pods_until_skewed(self.signature, node)

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
            not self.has_no_relations and self._relation_changes != self._relations.change_count
        )
        if is_relation_changed or (len(changed_nodes) - self._seen) * _RESCORE_ALL_RATIO > len(
            self.fits_empty
        ):
            self._rescore_all()
            return
        nodes = set(changed_nodes[self._seen :])
        if self._fragments is None:
            for node in nodes:
                self._rescore(node)
        else:
            self._rescore_with_fragments(self._fragments, nodes)
        self._seen = len(changed_nodes)

    def _rescore_all(self) -> None:
        resources, relations = self._resources, self._relations
        self._seen = len(self._statement.changed_nodes)
        self._relation_changes = relations.change_count
        if not len(self.fits_empty):
            return
        passing = None if self.has_no_relations else relations.passing(self.signature)
        self._open = self.fits_empty if passing is None else self.fits_empty & passing
        columns = [r for r, _ in self._requests]
        request = np.array([n for _, n in self._requests])
        mask = self._open & (resources.free[:, columns] >= request).all(axis=1)
        fits_idle = (resources.idle[:, columns] >= request).all(axis=1)
        shares_device: ScoreValue = 0
        for devices in self._devices:
            fits, fits_now, is_beside = devices.fits_on_nodes(
                self.row, resources.free, resources.idle
            )
            mask, fits_idle = mask & fits, fits_idle & fits_now
            shares_device = (shares_device | is_beside) & fits_idle
        features = NodeFeatures(
            free=resources.free[:, self._scored_resource.columns].sum(axis=1),
            allocatable=self._scored_resource.allocatable,
            max_allocatable=self._scored_resource.max_allocatable,
            fits_idle=fits_idle,
            has_gpu=self._scored_resource.has_gpu,
            is_nominated=np.equal(np.arange(len(mask)), self.signature.nominated_node),
            shares_device=shares_device,
        )
        if self._fragments is not None:
            fitting, ranks = np.flatnonzero(mask), np.zeros(len(mask), dtype=np.int64)
            ranks[fitting] = self._fragments.ranks(self.row, fitting)
            features = features._replace(fragment_rank=ranks)
        self._scores[: len(mask)] = np.where(mask, self._score(features), -math.inf)
        if self._preference is not None:
            self._scores[: len(mask)] += self._preference
        self._tops = self.rows.max(axis=1)

    def _rescore_with_fragments(self, fragments: Fragments, nodes: set[int]) -> None:
        changed = [(node, self._features(node)) for node in nodes if self._open[node]]
        fitting = [node for node, features in changed if features is not None]
        ranks = iter(fragments.ranks_on(self.row, fitting))
        for node, features in changed:
            score = -math.inf
            if features is not None:
                score = self._node_score(node, NodeFeatures(*features[:-1], next(ranks)))
            self._write(node, score)

    def _rescore(self, node: int) -> None:
        if self._open[node]:
            features = self._features(node)
            self._write(node, -math.inf if features is None else self._node_score(node, features))

    def _features(self, node: int) -> NodeFeatures | None:
        """Return what the score of a node is computed from, or None if the pod does not fit."""
        free = self._resources.free[node].tolist()
        if not has_enough(free, self._requests):
            return None
        fits, shares_device = True, False
        idle = self._resources.idle[node].tolist()
        fits_idle = has_enough(idle, self._requests)
        for devices in self._devices:
            here, now, is_beside = devices.fits(self.row, node, free, idle)
            fits, fits_idle = fits and here, fits_idle and now
            shares_device = shares_device or is_beside
        if not fits:
            return None
        scored_resource = self._scored_resource
        return NodeFeatures(  # by position: it is made for every node that changes
            sum([free[r] for r in scored_resource.columns]),
            scored_resource.allocatable_list[node],
            scored_resource.max_allocatable,
            fits_idle,
            scored_resource.has_gpu_list[node],
            node == self.signature.nominated_node,
            shares_device and fits_idle,
        )

    def _node_score(self, node: int, features: NodeFeatures) -> float:
        score = self._score_cache.get(features)
        if score is None:
            score = self._score_cache[features] = self._score(features)
        if self._preference is not None:
            score += self._preference[node]
        return score

    def _write(self, node: int, score: float) -> None:
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
