"""Placement by topology: the pods of a PodGroup or sub-group together in one domain.

The domains of the preferred level are tried first, then those of wider levels, up to the required
level or the whole cluster; on a level the fullest domain that could be enough. Which one a
sub-group gets is chosen when its first pod is placed, beside all pods that were placed before. If
it does not fit there, its next domain is tried, and after the last one the next domain of the
sub-group above.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
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
    Domain,
    DomainRequest,
    FirstDomain,
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
_MAX_FIRSTS: Final = 64  # requests
_NAME: Final = "topology"


class Scope(NamedTuple):
    """A PodGroup or sub-group with a constraint of its own."""

    number: int  # in its PodGroup, from the top down
    name: str  # of the sub-group; empty is the PodGroup
    constraint: DomainConstraint
    podsets: tuple[str, ...]


_Chain: TypeAlias = tuple[Scope, ...]  # around a PodSet, the outermost first
_EVERYWHERE: Final[Domain] = (NONE, 0)  # the whole cluster


class _Pick(NamedTuple):
    """The domain of a scope; if none is left, nothing fits."""

    domain: Domain | None
    skipped: int  # domains that come before it
    subset: NodeSubset  # of its nodes, within the domain of the scope above
    order: NodeSubset  # all nodes, in the order in which pods use them
    # Where the subset is a domain: of which topology. With NONE it is not, or not of one alone.
    topology: int = NONE


# A constraint, and the signature and number of pods.
_Repeatable: TypeAlias = tuple[DomainConstraint, int, int]
_TOP: Final = _Pick(_EVERYWHERE, 0, ALL_NODES, ALL_NODES)
_Picks: TypeAlias = dict[int, _Pick]  # by scope, in the order in which they were picked


class _Trial:
    """One alternative: a domain for each scope; those not yet known are picked on the way."""

    def __init__(
        self,
        strategy: "TopologyPlacement",
        tasks: Tasks,
        picks: _Picks,
        skip: tuple[int, int] = (NONE, 0),
        above: int = NONE,
    ) -> None:
        """*skip* is a scope, and how many of its domains were tried.

        Pods charged by node may only use nodes with GPUs that have more memory than *above*.
        """
        self._strategy: Final = strategy
        self._tasks: Final = tasks
        self._picks: Final = picks
        self._skip: Final = skip
        self._above: Final = above
        self._last: _Chain = ()
        self._subsets: Final[dict[_Chain, NodeSubset]] = {}

    def alternative(self) -> Alternative:
        chain_of = self._strategy.chain_of
        if len(self._tasks) == 1:
            chain = chain_of(self._tasks[0].podset.name)
            return (PlacementPart(partial(self._subset_of, chain)),)
        ranks = self._strategy.ranks()
        ordered = sorted(enumerate(self._tasks), key=lambda it: ranks[it[1].podset.name])
        parts = []
        for chain, group in groupby(ordered, key=lambda it: chain_of(it[1].podset.name)):
            some = [*group]
            tasks, positions = tuple([it for _, it in some]), [at for at, _ in some]
            parts.append(PlacementPart(partial(self._subset_of, chain), tasks, positions))
        return tuple(parts)

    def after_failure(self) -> "_Trial | None":
        """Return the trial with the next domain of the sub-group that did not fit."""
        for scope in reversed(self._last):
            pick = self._picks[scope.number]
            if pick.domain is not None:
                before = [*self._picks].index(scope.number)
                kept = dict(islice(self._picks.items(), before))
                skip = scope.number, pick.skipped + 1
                return _Trial(self._strategy, self._tasks, kept, skip)
        return None

    def after_refusal(self, refused: PodGroupAllocation) -> "_Trial | None":
        """Return the trial on larger GPUs of the same domains, where less is charged."""
        above = self._strategy.smallest_memory(self._tasks, refused)
        if above == NONE:  # in other domains no less is charged
            return None
        return _Trial(self._strategy, self._tasks, self._picks, above=above)

    def _subset_of(self, chain: _Chain, signature: int) -> NodeSubset:
        subset = self._subsets.get(chain)
        if subset is None:
            self._last = chain
            subset = self._subsets[chain] = self._picked(chain)
        if self._above != NONE:
            return self._strategy.on_larger_gpus(subset, signature, self._above)
        return subset

    def _picked(self, chain: _Chain) -> NodeSubset:
        outer, order = _TOP, ALL_NODES  # that of the innermost scope with a preferred level
        for scope in chain:
            pick = self._picks.get(scope.number)
            if pick is None:
                scope_to_skip, skipped = self._skip
                skipped = skipped if scope.number == scope_to_skip else 0
                pick = self._strategy.pick(scope, outer, self._tasks, skipped)
                self._picks[scope.number] = pick
            if scope.constraint.preferred != NONE:
                order = pick.order
            outer = pick
        subset = outer.subset
        if order.preference is None:
            return subset
        return NodeSubset((*subset.key, *order.key), subset.mask, order.preference)


class TopologyPlacement:
    """The placement of one attempt of a PodGroup with constraints."""

    only: Final = None

    def __init__(
        self, domains: "PodGroupDomains", podgroup: int, tasks: Tasks, runs: SignatureRuns
    ) -> None:
        """Prepare the placement of tasks with these signatures."""
        self._runs: Final = runs
        self._domains: Final = domains
        self._nodes: Final = domains.nodes
        chains = domains.chains(podgroup)
        self._chains: Final = chains
        self._podgroup: Final = podgroup
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

    def ranks(self) -> dict[str, int]:
        """Return the places of the PodSets in the PodGroup as it is written."""
        podsets = podsets_of(self._nodes.snapshot.podgroups[self._podgroup].tree)
        return {it.name: rank for rank, it in enumerate(podsets)}

    def chain_of(self, podset: str) -> _Chain:
        return self._chains.get(podset, ())

    def reach(self, _signature: int, /) -> NodeSubset:
        scope = self._required
        if scope is None:
            return ALL_NODES
        topology, level, *_ = scope.constraint
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
        topology, level, *_ = scope.constraint
        domains = self._domains.of_topology(topology)
        allowed = self._own_domains(scope) or range(len(domains.topology.paths[level]))
        some = tuple([it for it in tasks if it.podset.name in scope.podsets])
        counts = domain_request(self._nodes, self._domains.runs_of(some)).counts
        pods = [(domains.fitting(row).by_level[level], count) for row, count in counts]
        fitting = {it: sum([min(of[it], count) for of, count in pods]) for it in allowed}
        best = max(fitting, key=lambda it: fitting[it], default=NONE)
        return DomainShortage(
            topology=topology,
            level=level,
            subgroup=scope.name,
            needed=sum([count for _, count in counts]),
            domain=best,
            fitting=fitting.get(best, 0),
            domains=tuple(sorted(fitting)),
            is_bound=bool(self._own_domains(scope)),
            podsets=scope.podsets,
            is_default=scope.constraint.is_default,
        )

    def _within_reach(self, signature: int) -> NodeSubset:
        reach = self.reach(signature)
        return NodeSubset((*reach.key, "unrestricted"), reach.mask) if reach.key else reach

    # What a trial asks for.

    def pick(self, scope: Scope, outer: _Pick, tasks: Tasks, skipped: int) -> _Pick:
        """Return the domain for the pods of a scope that comes after some others."""
        repeated = self._repeatable(scope, outer, skipped)
        if repeated is not None and repeated in self._domains.firsts:
            first, pick = self._domains.firsts[repeated]
            if first.is_still_first(repeated[2]):
                return pick
        pick, domains = self._pick(scope, outer, tasks, skipped)
        at_base = pick.domain is not None and pick.domain[0] == scope.constraint.base
        if repeated is not None and pick.domain is not None and at_base:
            first = FirstDomain(domains, pick.domain, repeated[1])
            self._domains.note_first(repeated, first, pick)
        return pick

    def _repeatable(self, scope: Scope, outer: _Pick, skipped: int) -> _Repeatable | None:
        """Return what is equal for PodGroups that get the same domain one after the other.

        That are those of equal pods without devices, none of which has a node.
        """
        if not self.fits_by_count or skipped or outer is not _TOP or self._hosts[scope.number]:
            return None
        if len(self._runs) != 1 or self._nodes.devices.of[self._runs[0][0]]:
            return None
        return scope.constraint, *self._runs[0]

    def _pick(
        self, scope: Scope, outer: _Pick, tasks: Tasks, skipped: int
    ) -> tuple[_Pick, TopologyDomains]:
        topology, _, preferred, _ = scope.constraint
        some = tuple([it for it in tasks if it.podset.name in scope.podsets])
        places = [place.node for it in some for place in it.podset.reserved_places]
        request = domain_request(self._nodes, self._domains.runs_of(some), places)
        domains, under = self._domains.of_topology(topology), None
        if outer.topology == topology:
            under = outer.domain
        elif outer.subset.mask is not None:
            domains = TopologyDomains(self._nodes, domains.topology, outer.subset.mask)
        candidates = self._candidates(scope, domains, request, under)
        domain = next(islice(candidates, skipped, None), None)
        if domain is None:
            return _Pick(None, skipped, self._domains.no_nodes, ALL_NODES), domains
        order = ALL_NODES
        if preferred != NONE and domain[0] != preferred:
            order = self._order(scope, domains.in_order(request, preferred, under))
        if domain == _EVERYWHERE or (under is not None and domain[0] <= under[0]):
            return outer._replace(skipped=skipped, order=order), domains
        subset, is_domain = self._domains.subset(topology, domain), True
        if under is None and outer.subset.mask is not None:
            mask, is_domain = subset.within(outer.subset.mask), False
            subset = NodeSubset((*outer.subset.key, *subset.key), mask)
        return _Pick(domain, skipped, subset, order, topology if is_domain else NONE), domains

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
        under: Domain | None,
    ) -> Iterator[Domain]:
        """Yield the domains that could be enough: of each level those with its own pods first."""
        required = scope.constraint.required
        own = self._own_domains(scope)
        for level in range(scope.constraint.base, max(required, 0) - 1, -1):
            found: Iterable[int] = domains.fitting_in_order(request, level, under)
            if own:
                found = [it for it in found if domains.ancestor(level, it, required) in own]
            if self._hosts[scope.number]:
                hosted = self._hosted(scope, level)
                found = sorted(found, key=lambda it: -hosted[it])
            for it in found:
                yield level, it
        if required == NONE and domains.fit_in_all(request):
            yield _EVERYWHERE

    def _order(self, scope: Scope, domains: list[int]) -> NodeSubset:
        """Return all nodes in the order in which pods use them in a wider domain than preferred.

        That is the emptiest domain of the preferred level first, but those with pods of the scope
        before all others.
        """
        topology, _, preferred, _ = scope.constraint
        hosted = self._hosted(scope, preferred)
        order = tuple(sorted(domains, key=lambda it: hosted[it]))
        domain_of = self._domains.of_topology(topology).topology.domains[preferred]
        return NodeSubset((_NAME, topology, preferred, order), None, _preference(domain_of, order))

    def _own_domains(self, scope: Scope) -> set[int]:
        """Return the domains with pods that have nodes, in one of which the others must be."""
        topology, level, *_ = scope.constraint
        if level == NONE:
            return set()
        domain_of = self._domains.of_topology(topology).of_node
        hosts = self._hosts[scope.number].items()
        return {domain_of[node][level] for node, count in hosts if count} - {NONE}

    def _allowed(self, scope: Scope, domain_of: Ints) -> Bools:
        """Return the nodes in the domains that a scope may use."""
        own = self._own_domains(scope)
        return np.isin(domain_of, [*own]) if own else domain_of != NONE

    def _hosted(self, scope: Scope, level: int) -> Counter[int]:
        """Count the pods of a scope that have nodes, or are nominated to some, by domain."""
        domain_of = self._domains.of_topology(scope.constraint.topology).of_node
        found = Counter[int]()
        for node, count in self._hosts[scope.number].items():
            found[domain_of[node][level]] += count or 1
        return found

    def _widest(self, tasks: Tasks) -> _Picks:
        scopes = {scope for it in tasks for scope in self.chain_of(it.podset.name)}
        return {it.number: _TOP for it in scopes if it.constraint.required == NONE}


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
        self._nominated_node: Final = {  # by signature
            row: it.nominated_node
            for row, it in enumerate(nodes.snapshot.signatures)
            if it.nominated_node != NONE
        }
        self._allocations: Final = allocations
        self._seen = 0
        self._assigned: Final[dict[int, list[PodGroupAllocation]]] = {}  # by PodGroup
        self._topologies: Final[dict[int, TopologyDomains]] = {}
        self._chains: Final[dict[int, dict[str, _Chain]]] = {}
        # Those of PodGroups without sub-groups, most of which are equal.
        self._flat_chains: Final[dict[tuple[str, DomainConstraint | None], dict[str, _Chain]]] = {}
        self._subsets: Final[dict[tuple[int, Domain], NodeSubset]] = {}
        # What came first for earlier requests.
        self.firsts: Final[dict[_Repeatable, tuple[FirstDomain, _Pick]]] = {}

    def strategy_of(
        self, podgroup: int, tasks: Tasks, runs: SignatureRuns
    ) -> TopologyPlacement | None:
        chains = self.chains(podgroup)
        if not any(it.podset.name in chains for it in tasks):
            return None
        return TopologyPlacement(self, podgroup, tasks, runs)

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
            found = self._flat_chains.get((tree.name, tree.domains))
            if found is None or isinstance(tree, SubGroupSet):
                found = dict(_chains(tree, (), [0]))
                if not isinstance(tree, SubGroupSet):
                    self._flat_chains[tree.name, tree.domains] = found
            self._chains[podgroup] = found
        return found

    def subset(self, topology: int, candidate: Domain) -> NodeSubset:
        if candidate == _EVERYWHERE:
            return ALL_NODES
        key = topology, candidate
        if key not in self._subsets:
            mask = self.of_topology(topology).members(*candidate)
            self._subsets[key] = NodeSubset((_NAME, topology, *candidate), mask)
        return self._subsets[key]

    def note_first(self, repeated: _Repeatable, first: FirstDomain, pick: _Pick) -> None:
        if repeated not in self.firsts and len(self.firsts) >= _MAX_FIRSTS:
            del self.firsts[next(iter(self.firsts))]  # the oldest one is dropped
        self.firsts[repeated] = first, pick

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
        podsets = podsets_of(snapshot.podgroups[podgroup].tree)
        podsets = tuple([it for it in podsets if it.name in scope.podsets])
        for podset in podsets:
            if podset.running_pods:
                found.update(snapshot.pods.node[[*podset.running_pods]].tolist())
            found.update([place.node for place in podset.reserved_places])
        for placed in self._allocations_of(podgroup):
            own = {pod for podset in podsets for pod in podset.pending}
            found.update([it.node for it in (*placed.binds, *placed.nominations) if it.pod in own])
            for it in placed.reservations:
                if it.podset in scope.podsets:
                    found[it.node] += it.number
        if self._nominated_node:
            for row, _ in self.runs_of(tuple([it for it in tasks if it.podset in podsets])):
                if row in self._nominated_node:
                    found[self._nominated_node[row]] += 0
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


def _preference(domain_of: Ints, order: Sequence[int]) -> Floats:
    """Return a preference, [node]: the last domain of an order is preferred most."""
    rank = np.zeros(max(order, default=0) + 2, dtype=np.int64)
    rank[[*order]] = np.arange(len(order)) + 1
    at = np.where((domain_of == NONE) | (domain_of > len(rank) - 2), len(rank) - 1, domain_of)
    found: Floats = np.maximum(rank[at] - max(len(order) - _MAX_PREFERENCE, 0), 0)
    return found * _PREFERENCE_STEP
