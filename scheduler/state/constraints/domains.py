"""The topology constraints of PodGroups: names of topologies and levels become rows and levels.

A level is named by its node label or its alias. A preferred level that does not exist, or is wider
than the required one, is ignored; a required one keeps a PodGroup from its start.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from scheduler.core.model.podgroup import PodSet, SubGroupSet, SubGroupTree
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import NONE
from scheduler.core.model.topology import DomainConstraint
from scheduler.state.nodes.topologies import TopologyTable
from trainer_kai.api.kai_kinds import PodGroup, TopologyConstraint, TopologySpec
from trainer_kai.api.names import TOPOLOGY
from trainer_kai.api.text import listed_names

_MAX_NAMES: Final = 8  # names in a message
_TOP: Final = ""  # the name of the PodGroup among its sub-groups


class ResolvedConstraints(NamedTuple):
    """By sub-group; that of the PodGroup itself has an empty name."""

    domains: Mapping[str, DomainConstraint]
    failure: PreFilterFailure | None = None
    warnings: tuple[str, ...] = ()


NO_CONSTRAINTS: Final = ResolvedConstraints({})


class ConstraintResolver:
    def __init__(self, topologies: TopologyTable) -> None:
        self._topologies: Final = topologies

    def resolve(self, group: PodGroup, default: TopologyConstraint | None) -> ResolvedConstraints:
        """Resolve what a PodGroup says; if it says nothing, what its queue says.

        The default of a queue is ignored where it does not exist: it is no mistake of the user.
        """
        named = dict(_own_constraints(group))
        if not named:
            return NO_CONSTRAINTS if default is None else self._default(default)
        domains: dict[str, DomainConstraint] = {}
        failures, warnings = [], list[str]()
        for subgroup, constraint in named.items():
            one = self._resolve(subgroup, constraint)
            domains.update(one.domains)
            warnings += one.warnings
            failures += [one.failure] if one.failure else []
        return ResolvedConstraints(domains, next(iter(failures), None), tuple(warnings))

    def _default(self, default: TopologyConstraint) -> ResolvedConstraints:
        domains = self._resolve(_TOP, default).domains
        return ResolvedConstraints(
            {name: it._replace(is_default=True) for name, it in domains.items()}
        )

    def faults_of_default(self, default: TopologyConstraint) -> Iterator[str]:
        """Yield why the topology of a queue is ignored."""
        found = self._resolve(_TOP, default)
        yield from found.warnings
        if found.failure is None:
            return
        name, level = default.topology, default.required_topology_level
        if found.failure.cause is PreFilterCause.TOPOLOGY_MISSING:
            yield f"annotation {TOPOLOGY} is ignored: Topology {name} does not exist"
        else:
            yield f"annotation {TOPOLOGY} is ignored: Topology {name} has no level {level}"

    def _resolve(self, subgroup: str, constraint: TopologyConstraint) -> ResolvedConstraints:
        name = constraint.topology
        spec = self._topologies.spec(name)
        required, preferred = (
            constraint.required_topology_level,
            constraint.preferred_topology_level,
        )
        if spec is None:
            known = listed_names(self._topologies.names, _MAX_NAMES)
            if required:
                return _failed(PreFilterCause.TOPOLOGY_MISSING, subgroup, name, known)
            return _ignored(subgroup, f"Topology {name} does not exist")
        levels = _levels(spec)
        known = listed_names([it.node_label for it in spec.levels], _MAX_NAMES)
        if required and required not in levels:
            return _failed(PreFilterCause.TOPOLOGY_LEVEL_MISSING, subgroup, required, name, known)
        row, at = self._topologies.names.index(name), levels.get(required, NONE)
        nearer, warnings = levels.get(preferred, NONE), tuple[str, ...]()
        if preferred and nearer == NONE:
            problem = f"Topology {name} has no level {preferred}; its levels are {known}"
            warnings = _ignored(subgroup, problem).warnings
        elif NONE < nearer < at:
            problem = f"level {preferred} of Topology {name} is wider than the required {required}"
            warnings = _ignored(subgroup, problem).warnings
            nearer = NONE
        if at == nearer == NONE:
            return ResolvedConstraints({}, None, warnings)
        return ResolvedConstraints({subgroup: DomainConstraint(row, at, nearer)}, None, warnings)


def with_domains(tree: SubGroupTree, domains: Mapping[str, DomainConstraint]) -> SubGroupTree:
    """Return a tree with the constraints of its sub-groups; that of its top is the PodGroup's."""
    if not domains:
        return tree
    return replace(_with_domains(tree, domains), domains=domains.get(_TOP))


def _with_domains(tree: SubGroupTree, domains: Mapping[str, DomainConstraint]) -> SubGroupTree:
    own = domains.get(tree.name)
    if isinstance(tree, PodSet):
        return replace(tree, domains=own)
    children = tuple([_with_domains(child, domains) for child in tree.children])
    return SubGroupSet(tree.name, tree.minimum, children, own)


def _own_constraints(group: PodGroup) -> Iterator[tuple[str, TopologyConstraint]]:
    """Yield the constraints with a level; without a topology they count as none, as in KAI."""
    spec = group.spec
    subs = [(sub.name, sub.topology_constraint) for sub in spec.sub_groups]
    for name, it in [(_TOP, spec.topology_constraint), *subs]:
        if it and it.topology and (it.required_topology_level or it.preferred_topology_level):
            yield name, it


def _levels(spec: TopologySpec) -> dict[str, int]:
    aliases = {it.alias: level for level, it in enumerate(spec.levels) if it.alias}
    return {**aliases, **{it.node_label: level for level, it in enumerate(spec.levels)}}


def _failed(cause: PreFilterCause, subgroup: str, *values: str) -> ResolvedConstraints:
    subject = f"sub-group {subgroup}" if subgroup else "the PodGroup"
    return ResolvedConstraints({}, PreFilterFailure(cause, (subject, *values)))


def _ignored(subgroup: str, problem: str) -> ResolvedConstraints:
    of = f" of sub-group {subgroup}" if subgroup else ""
    return ResolvedConstraints(
        {}, None, (f"the preferred topology level{of} is ignored: {problem}",)
    )
