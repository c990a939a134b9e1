"""Placement by topology: the pods of a PodGroup or sub-group together in one domain.

The domains of the preferred level are tried first, then those of wider levels, up to the required
level or the whole cluster; on a level the fullest domain that could be enough. Which one a
sub-group gets is chosen when its first pod is placed, beside all pods that were placed before. If
it does not fit there, its next domain is tried, and after the last one the next domain of the
sub-group above.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.gang import SignatureRuns, Tasks
from scheduler.core.model.podgroup import SubGroupSet, SubGroupTree, podsets_of
from scheduler.core.model.rejections import DomainShortage
from scheduler.core.model.resources import NONE, Bools, Floats, Ints
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.model.topology import DomainConstraint
from scheduler.core.nodes.charges import NodeCharges
from scheduler.core.nodes.strategies.domains import (
    DomainRequest,
    NodesInUse,
    TopologyDomains,
    domain_request,
)
from scheduler.core.nodes.strategies.strategy import (
    ALL_NODES,
    Alternative,
    Alternatives,
    NodeSubset,
    PlacementPart,
)

_MAX_ALTERNATIVES: Final = 64  # of one attempt; count by count most domains are left out before
# The order of preferred domains outranks all scores but a nominated node.
_PREFERENCE_STEP: Final = 12_000.0
_MAX_PREFERENCE: Final = 800  # domains; those after them are equal
_NAME: Final = "topology"


class Scope(NamedTuple):
    """A PodGroup or sub-group with a constraint of its own."""

    number: int  # in its PodGroup, from the top down
    name: str  # of the sub-group; empty is the PodGroup
    constraint: DomainConstraint
    podsets: tuple[str, ...]


_Chain: TypeAlias = tuple[Scope, ...]  # around a PodSet, the outermost first
_Candidate: TypeAlias = tuple[int, int]  # level, domain; the level NONE is the whole cluster
_EVERYWHERE: Final[_Candidate] = (NONE, 0)


class _Pick(NamedTuple):
    """The domain of a scope, and those that come after it; without any nothing fits."""

    candidates: tuple[_Candidate, ...]
    outer: NodeSubset
    order: Ints | None  # of the domains of the preferred level, the fullest first

    @property
    def next(self) -> "_Pick":
        return self._replace(candidates=self.candidates[1:])


_Picks: TypeAlias = dict[int, _Pick]  # by scope, in the order in which they were picked


class _Trial:
    """One alternative: a domain for each scope; those not yet known are picked on the way."""

    def __init__(
        self, strategy: "TopologyPlacement", tasks: Tasks, picks: _Picks, above: int = NONE
    ) -> None:
        """Pods charged by node may only use nodes with GPUs that have more memory than *above*."""
        self._strategy: Final = strategy
        self._tasks: Final = tasks
        self._picks: Final = picks
        self._above: Final = above
        self._last: _Chain = ()
        self._subsets: Final[dict[_Chain, NodeSubset]] = {}

    def alternative(self) -> Alternative:
        chain_of, rank_of = self._strategy.chain_of, self._strategy.rank_of
        ordered = sorted(enumerate(self._tasks), key=lambda it: rank_of(it[1].podset.name))
        parts = [
            (chain, [*some])
            for chain, some in groupby(ordered, key=lambda it: chain_of(it[1].podset.name))
        ]
        if len(self._tasks) == 1:
            return (PlacementPart(partial(self._subset_of, parts[0][0])),)
        return tuple(
            PlacementPart(
                partial(self._subset_of, chain),
                tuple([it for _, it in some]),
                [at for at, _ in some],
            )
            for chain, some in parts
        )

    def after_failure(self) -> "_Trial | None":
        """Return the trial with the next domain of the sub-group that did not fit."""
        for scope in reversed(self._last):
            pick = self._picks.get(scope.number)
            if pick is not None and len(pick.candidates) > 1:
                kept: _Picks = {}
                for number, one in self._picks.items():
                    if number == scope.number:
                        break
                    kept[number] = one
                kept[scope.number] = pick.next
                return _Trial(self._strategy, self._tasks, kept)
        return None

    def after_refusal(self, refused: PodGroupAllocation) -> "_Trial | None":
        """Return the trial on larger GPUs of the same domains, where less is charged."""
        above = self._strategy.smallest_memory(self._tasks, refused)
        if above == NONE:  # in other domains no less is charged
            return None
        return _Trial(self._strategy, self._tasks, self._picks, above)

    def _subset_of(self, chain: _Chain, signature: int) -> NodeSubset:
        subset = self._subsets.get(chain)
        if subset is None:
            self._last = chain
            subset = self._subsets[chain] = self._picked(chain)
        if self._above != NONE:
            return self._strategy.on_larger_gpus(subset, signature, self._above)
        return subset

    def _picked(self, chain: _Chain) -> NodeSubset:
        strategy, subset = self._strategy, ALL_NODES
        order = ALL_NODES  # the preference of the innermost scope that has one
        for scope in chain:
            pick = self._picks.get(scope.number)
            if pick is None:
                pick = self._picks[scope.number] = strategy.pick(scope, subset, self._tasks)
            subset = strategy.subset(scope, pick)
            if scope.constraint.preferred != NONE:
                order = strategy.order(scope, pick)
        if order.preference is None:
            return subset
        return NodeSubset((*subset.key, *order.key), subset.mask, order.preference)


class TopologyPlacement:
    """The placement of one attempt of a PodGroup with constraints."""

    only: Final = None

    def __init__(
        self,
        domains: "PodGroupDomains",
        podgroup: int,
        tasks: Tasks,
    ) -> None:
        self._domains: Final = domains
        self._nodes: Final = domains.nodes
        chains = domains.chains(podgroup)
        self._chains: Final = chains
        podsets = podsets_of(self._nodes.snapshot.podgroups[podgroup].tree)
        self._ranks: Final = {it.name: rank for rank, it in enumerate(podsets)}
        scopes = {scope: None for it in tasks for scope in chains.get(it.podset.name, ())}
        self._hosts: Final = {
            scope.number: domains.hosts(podgroup, scope, tasks) for scope in scopes
        }
        parts = tuple([(self.chain_of(it.podset.name), len(it.pods) + it.expected) for it in tasks])
        self.key: Final = (
            _NAME,
            tuple(
                (tuple([(scope.number, scope.constraint) for scope in chain]), count)
                for chain, count in parts
            ),
            tuple([(n, tuple(sorted(hosts.items()))) for n, hosts in self._hosts.items()]),
        )
        # The innermost scope of all tasks, of which domains of one level are used.
        common = [it for it in scopes if all(it in chain for chain, _ in parts)]
        self._required: Final = next(
            (it for it in reversed(common) if it.constraint.required != NONE), None
        )
        self.fits_by_count: Final = len(scopes) == 1 == len(common)

    def rank_of(self, podset: str) -> int:
        """Return the place of a PodSet in the PodGroup as it is written."""
        return self._ranks[podset]

    def chain_of(self, podset: str) -> _Chain:
        return self._chains.get(podset, ())

    def reach(self, _signature: int, /) -> NodeSubset:
        scope = self._required
        if scope is None:
            return ALL_NODES
        topology, level, _ = scope.constraint
        domain_of = self._domains.of_topology(topology).topology.domains[level]
        mask = self._allowed(scope, domain_of)
        hosts = tuple(sorted(self._hosts[scope.number]))
        key = (_NAME, topology, level, "reach", hosts)
        return NodeSubset(key, mask, domains=np.where(mask, domain_of, NONE))

    def alternatives(self, tasks: Tasks, /) -> Alternatives:
        trial: _Trial | None = _Trial(self, tasks, {})
        for _ in range(_MAX_ALTERNATIVES - 1):
            assert trial is not None
            refused = yield trial.alternative()
            trial = trial.after_failure() if refused is None else trial.after_refusal(refused)
            if trial is None:
                return
        if self._required is None:  # what is only preferred may be tried too often
            yield _Trial(self, tasks, self._widest(tasks)).alternative()

    @property
    def unrestricted(self) -> Alternative:
        """Return where the pods could be if they could be in several domains."""
        return (PlacementPart(self._within_reach),)

    def shortages(self, tasks: Tasks, /) -> Sequence[DomainShortage]:
        scopes = {scope: None for it in tasks for scope in self.chain_of(it.podset.name)}
        required = sorted(it for it in scopes if it.constraint.required != NONE)
        return [self._shortage_of(scope, tasks) for scope in required]

    def _shortage_of(self, scope: Scope, tasks: Tasks) -> DomainShortage:
        topology, level, _ = scope.constraint
        domains = self._domains.of_topology(topology)
        domain_of = domains.topology.domains[level]
        allowed = self._allowed(scope, domain_of)
        here = domain_of[allowed]
        some = tuple([it for it in tasks if it.podset.name in scope.podsets])
        counts = domain_request(self._nodes, self._domains.runs_of(some)).counts
        fitting = sum(
            [np.minimum(domains.fitting(row, level, allowed), count) for row, count in counts],
            np.zeros(len(domains.topology.paths[level]), dtype=np.int64),
        )
        best = int(fitting.argmax()) if len(fitting) else NONE
        return DomainShortage(
            topology=topology,
            level=level,
            subgroup=scope.name,
            needed=sum([count for _, count in counts]),
            domain=best,
            fitting=int(fitting.max(initial=0)),
            domains=tuple(sorted({*here[here != NONE].tolist()})),
            is_bound=self._is_bound(scope),
            podsets=scope.podsets,
        )

    def _within_reach(self, signature: int) -> NodeSubset:
        reach = self.reach(signature)
        return NodeSubset((*reach.key, "unrestricted"), reach.mask) if reach.key else reach

    # What a trial asks for.

    def pick(self, scope: Scope, outer: NodeSubset, tasks: Tasks) -> _Pick:
        """Return the domains that could be enough for the pods of a scope, in order."""
        some = tuple([it for it in tasks if it.podset.name in scope.podsets])
        places = [place.node for it in some for place in it.podset.reserved_places]
        request = domain_request(self._nodes, self._domains.runs_of(some), places)
        constraint, inside = scope.constraint, outer.mask
        domains = self._domains.of_topology(constraint.topology)
        order = domains.order(request, constraint.base, inside)
        found: list[_Candidate] = []
        for level in range(constraint.base, max(constraint.required, 0) - 1, -1):
            found += self._candidates(scope, domains, request, (level, order[level], inside))
        if constraint.required == NONE and domains.fits(request, NONE, inside)[0]:
            found.append(_EVERYWHERE)
        preferred = constraint.preferred
        return _Pick(tuple(found), outer, None if preferred == NONE else order[preferred])

    def subset(self, scope: Scope, pick: _Pick) -> NodeSubset:
        if not pick.candidates:
            return self._domains.no_nodes
        subset = self._domains.subset(scope.constraint.topology, pick.candidates[0])
        if pick.outer.mask is None or subset.mask is None:
            return subset if pick.outer.mask is None else pick.outer
        return NodeSubset((*pick.outer.key, *subset.key), pick.outer.mask & subset.mask)

    def order(self, scope: Scope, pick: _Pick) -> NodeSubset:
        """Return all nodes in the order in which pods use them.

        In a domain that is wider than preferred, that is the emptiest domain of the preferred level
        first, but those with pods of the scope before all others.
        """
        topology, _, preferred = scope.constraint
        if pick.order is None or not pick.candidates or pick.candidates[0][0] == preferred:
            return ALL_NODES
        domain_of = self._domains.of_topology(topology).topology.domains[preferred]
        hosts = self._hosted(scope, domain_of)
        order = np.array(sorted(pick.order.tolist(), key=lambda it: hosts[it]), dtype=np.int64)
        key = (_NAME, topology, preferred, order.tobytes())
        return NodeSubset(key, None, _preference(domain_of, order))

    def smallest_memory(self, tasks: Tasks, refused: PodGroupAllocation) -> int:
        pods = self._domains.charges.pods_charged_by_node(tasks, refused)
        memory = self._nodes.snapshot.nodes.gpu_memory
        return min([int(memory[it.node]) for it in pods], default=NONE)

    def on_larger_gpus(self, subset: NodeSubset, signature: int, above: int) -> NodeSubset:
        if not self._nodes.snapshot.signatures[signature].is_charged_by_node:
            return subset
        mask = subset.within(self._nodes.snapshot.nodes.gpu_memory > above)
        return NodeSubset((*subset.key, "larger GPUs", above), mask, subset.preference)

    def _candidates(
        self,
        scope: Scope,
        domains: TopologyDomains,
        request: DomainRequest,
        at: tuple[int, Ints, Bools | None],
    ) -> Iterator[_Candidate]:
        """Yield the domains of a level that could be enough: those with its own pods first."""
        level, order, inside = at
        domain_of = domains.topology.domains[level]
        fits = domains.fits(request, level, inside)
        here = domain_of if inside is None else domain_of[inside]
        fits &= np.isin(np.arange(len(fits)), here)
        if self._is_bound(scope):
            allowed = self._allowed(scope, domains.topology.domains[scope.constraint.required])
            fits &= np.isin(np.arange(len(fits)), domain_of[allowed])
        hosts = self._hosted(scope, domain_of)
        fitting: list[int] = order[fits[order]].tolist()
        yield from ((level, it) for it in sorted(fitting, key=lambda it: -hosts[it]))

    def _is_bound(self, scope: Scope) -> bool:
        """Say whether pods that have nodes decide where the others must be."""
        topology, level, _ = scope.constraint
        if level == NONE or not self._hosts[scope.number]:
            return False
        domain_of = self._domains.of_topology(topology).topology.domains[level]
        return any(domain_of[node] != NONE for node, n in self._hosts[scope.number].items() if n)

    def _allowed(self, scope: Scope, domain_of: Ints) -> Bools:
        """Return the nodes in the domains that a scope may use."""
        if not self._is_bound(scope):
            found: Bools = domain_of != NONE
            return found
        own = [domain_of[node] for node, n in self._hosts[scope.number].items() if n]
        return np.isin(domain_of, [it for it in own if it != NONE])

    def _hosted(self, scope: Scope, domain_of: Ints) -> Counter[int]:
        """Count the pods of a scope that have nodes, or are nominated to some, by domain."""
        found = Counter[int]()
        for node, count in self._hosts[scope.number].items():
            found[int(domain_of[node])] += count or 1
        return found

    def _widest(self, tasks: Tasks) -> _Picks:
        scopes = {scope for it in tasks for scope in self.chain_of(it.podset.name)}
        return {
            scope.number: _Pick((_EVERYWHERE,), ALL_NODES, None)
            for scope in scopes
            if scope.constraint.required == NONE
        }


class PodGroupDomains:
    """The topologies of one plan, and the constraints and nodes of its PodGroups."""

    def __init__(
        self, nodes: NodesInUse, charges: NodeCharges, allocations: Sequence[PodGroupAllocation]
    ) -> None:
        """*allocations* are those of the plan so far."""
        self.nodes: Final = nodes
        self.charges: Final = charges
        count = len(nodes.snapshot.nodes.names)
        self.no_nodes: Final = NodeSubset((_NAME, "none"), np.zeros(count, dtype=np.bool_))
        self._allocations: Final = allocations
        self._seen = 0
        self._assigned: Final[dict[int, list[PodGroupAllocation]]] = {}  # by PodGroup
        self._topologies: Final[dict[int, TopologyDomains]] = {}
        self._chains: Final[dict[int, dict[str, _Chain]]] = {}
        self._subsets: Final[dict[tuple[int, _Candidate], NodeSubset]] = {}

    def strategy_of(
        self, podgroup: int, tasks: Tasks, _runs: SignatureRuns
    ) -> TopologyPlacement | None:
        chains = self.chains(podgroup)
        if not any(it.podset.name in chains for it in tasks):
            return None
        return TopologyPlacement(self, podgroup, tasks)

    def of_topology(self, row: int) -> TopologyDomains:
        found = self._topologies.get(row)
        if found is None:
            found = TopologyDomains(self.nodes, self.nodes.snapshot.topologies[row])
            self._topologies[row] = found
        return found

    def chains(self, podgroup: int) -> dict[str, _Chain]:
        """Return the scopes around each PodSet that has any."""
        found = self._chains.get(podgroup)
        if found is None:
            tree = self.nodes.snapshot.podgroups[podgroup].tree
            found = self._chains[podgroup] = dict(_chains(tree, (), [0]))
        return found

    def subset(self, topology: int, candidate: _Candidate) -> NodeSubset:
        if candidate == _EVERYWHERE:
            return ALL_NODES
        key = topology, candidate
        if key not in self._subsets:
            mask = self.of_topology(topology).members(*candidate)
            self._subsets[key] = NodeSubset((_NAME, topology, *candidate), mask)
        return self._subsets[key]

    def runs_of(self, tasks: Tasks) -> SignatureRuns:
        signature_of = self.nodes.snapshot.pods.signature
        counts = Counter[int]()
        for podset, pods, expected in tasks:
            counts.update(signature_of[[*pods]].tolist())
            if expected:
                counts[podset.expected_signature] += expected
        return tuple(counts.items())

    def hosts(self, podgroup: int, scope: Scope, tasks: Tasks) -> Counter[int]:
        """Count the pods and reserved places of a scope by node.

        A node that has none counts 0 if pods of the tasks are nominated to it.
        """
        snapshot, found = self.nodes.snapshot, Counter[int]()
        podsets = [
            it for it in podsets_of(snapshot.podgroups[podgroup].tree) if it.name in scope.podsets
        ]
        for podset in podsets:
            found.update(snapshot.pods.node[[*podset.running_pods]].tolist())
            found.update([place.node for place in podset.reserved_places])
        own = {pod for podset in podsets for pod in podset.pending}
        for placed in self._allocations_of(podgroup):
            found.update([it.node for it in (*placed.binds, *placed.nominations) if it.pod in own])
            for it in placed.reservations:
                if it.podset in scope.podsets:
                    found[it.node] += it.number
        for row, _ in self.runs_of(tuple([it for it in tasks if it.podset in podsets])):
            node = snapshot.signatures[row].nominated_node
            if node != NONE:
                found[node] += 0
        del found[NONE]
        return found

    def _allocations_of(self, podgroup: int) -> Sequence[PodGroupAllocation]:
        for placed in self._allocations[self._seen :]:
            self._assigned.setdefault(placed.podgroup, []).append(placed)
        self._seen = len(self._allocations)
        return self._assigned.get(podgroup, ())


def _chains(tree: SubGroupTree, above: _Chain, count: list[int]) -> Iterator[tuple[str, _Chain]]:
    """Yield the chains of all PodSets that have scopes; *count* is of the scopes so far."""
    chain = above
    if tree.domains is not None:
        names = tuple([it.name for it in podsets_of(tree)])
        name = tree.name if above or count[0] or not _is_top(tree) else ""
        chain = (*above, Scope(count[0], name, tree.domains, names))
        count[0] += 1
    if isinstance(tree, SubGroupSet):
        for child in tree.children:
            yield from _chains(child, chain, count)
    elif chain:
        yield tree.name, chain


def _is_top(tree: SubGroupTree) -> bool:
    return tree.name in {"", "default"}


def _preference(domain_of: Ints, order: Ints) -> Floats:
    """Return a preference, [node]: the last domain of an order is preferred most."""
    position = np.empty(len(order) + 1, dtype=np.int64)
    position[order] = np.arange(len(order)) + 1
    position[-1] = 0  # nodes in no domain
    rank = np.maximum(position[domain_of] - max(len(order) - _MAX_PREFERENCE, 0), 0)
    found: Floats = rank * _PREFERENCE_STEP
    return found
