"""Which domains of a topology pods get: the rules 27k to 27s, domain by domain."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Any, TypeAlias

from tests.reference.scheduler.model import (
    ClusterInfo,
    Constraint,
    NodeInfo,
    PodGroupInfo,
    PodInfo,
    PodSet,
    SubGroup,
    TopologyInfo,
)
from tests.reference.scheduler.resources import Amounts, added, gpu_count

Obj: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str, ...]  # of a domain
Preferences: TypeAlias = Mapping[str, int]  # by node, the larger the better
# Places pods of one PodSet on some nodes, and says whether all fit.
PlacePods: TypeAlias = Callable[[Sequence[PodInfo], list[NodeInfo], Preferences | None], bool]

_MEMBERS = ("there", "bound", "nominated", "reserved")


def read_constraints(cluster: ClusterInfo, groups: Iterable[Obj], topologies: list[Obj]) -> None:
    """Read the constraints of PodGroups, and which of equal nodes come late."""
    known = {
        it["metadata"]["name"]: TopologyInfo(
            it["metadata"]["name"], tuple(level["nodeLabel"] for level in it["spec"]["levels"])
        )
        for it in topologies
    }
    by_uid = {podgroup.uid: podgroup for podgroup in cluster.podgroups}
    for group in groups:
        podgroup, spec = by_uid[group["metadata"]["uid"]], group["spec"]
        for name, it in [
            ("", spec.get("topologyConstraint")),
            *((sub["name"], sub.get("topologyConstraint")) for sub in spec.get("subGroups", ())),
        ]:
            if it and it.get("topology") in known and not podgroup.is_invalid:
                _read_constraint(podgroup, name, it, known)
    if known:
        first = known[min(known)]
        for needs_gpus in (False, True):
            _set_lateness(cluster, first, needs_gpus=needs_gpus)


def _read_constraint(
    podgroup: PodGroupInfo, name: str, raw: Obj, known: Mapping[str, TopologyInfo]
) -> None:
    required, preferred = (raw.get(f"{it}TopologyLevel", "") for it in ("required", "preferred"))
    topology = known[raw["topology"]]
    must, should = (
        topology.labels.index(it) + 1 if it in topology.labels else 0
        for it in (required, preferred)
    )
    should = 0 if should < must else should
    if must or should:
        podgroup.constraints[name] = Constraint(topology, must, should)


def _set_lateness(cluster: ClusterInfo, topology: TopologyInfo, *, needs_gpus: bool) -> None:
    """Note which of equal nodes are used first: those in no domain, then those in fuller ones."""
    free: dict[Path, int] = {}
    for node_info in cluster.nodes:
        path, room = topology.path(node_info), added(node_info.idle, node_info.releasing)
        amount = gpu_count(room) if needs_gpus else room.get("cpu", 0)
        for depth in range(1, len(path) + 1):
            here = int(max(0, amount)) if node_info.is_schedulable else 0
            free[path[:depth]] = free.get(path[:depth], 0) + here
    keys = {it.name: _tree_key(topology.path(it), free) for it in cluster.nodes}
    for name, key in keys.items():
        cluster.lateness[needs_gpus, name] = sum(other < key for other in keys.values())


def _tree_key(path: Path, free: Mapping[Path, Any]) -> list[Any]:
    return [(free[path[:depth]], path[:depth]) for depth in range(1, len(path) + 1)]


def is_constrained(podgroup: PodGroupInfo, pods: Iterable[PodInfo]) -> bool:
    """Say whether any of these pods is restricted or has preferences."""
    return any(_chain(podgroup, pod) for pod in pods)


def place_in_domains(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo], place_pods: PlacePods
) -> bool:
    """Place pods of a PodGroup in domains; say whether all fit. If not, nothing has changed."""
    placement = _DomainPlacement(cluster, podgroup, pods, place_pods)
    undo = placement.undo()
    if placement.place(podgroup.root, True, cluster.nodes, None):
        return True
    undo()
    return False


class _DomainPlacement:
    def __init__(
        self,
        cluster: ClusterInfo,
        podgroup: PodGroupInfo,
        pods: list[PodInfo],
        place_pods: PlacePods,
    ) -> None:
        self.cluster, self.podgroup, self.pods = cluster, podgroup, pods
        self.place_pods = place_pods
        names = [*_scopes(podgroup, pods)]
        self.hosts = {name: _hosts(podgroup, name, pods) for name in names}

    def place(
        self, part: SubGroup, is_top: bool, nodes: list[NodeInfo], preferences: Preferences | None
    ) -> bool:
        """Place the pods of a part of the PodGroup in the first domain in which all of it fits."""
        name = "" if is_top else part.name
        mine = [pod for pod in _pods_of(part) if pod in self.pods]
        constraint = self.podgroup.constraints.get(name)
        if not mine or constraint is None:
            return not mine or self._place_below(part, nodes, preferences)
        undo = self.undo()
        order = self._order(constraint, mine, nodes)
        own = self._preferences(constraint, name, order)
        for depth, domain in self._candidates(constraint, name, order, nodes):
            inner = [
                it for it in nodes if depth == 0 or constraint.topology.path(it)[:depth] == domain
            ]
            if constraint.preferred == 0:
                inner_preferences = preferences
            else:
                inner_preferences = None if depth == constraint.preferred else own
            if self._place_below(part, inner, inner_preferences):
                return True
            undo()
        return False

    def undo(self) -> Callable[[], None]:
        """Return what makes everything as it is now."""
        before = [(it, it.state()) for it in self.cluster.nodes]
        states = [(pod, pod.state, pod.node) for pod in self.pods]

        def restore() -> None:
            for node_info, state in before:
                node_info.restore(state)
            for pod, name, node in states:
                pod.state, pod.node = name, node

        return restore

    def _place_below(
        self, part: SubGroup, nodes: list[NodeInfo], preferences: Preferences | None
    ) -> bool:
        if isinstance(part, PodSet):
            mine = [pod for pod in self.pods if pod in part.pods or pod in part.expected]
            return self.place_pods(mine, nodes, preferences)
        return all(self.place(child, False, nodes, preferences) for child in part.children)

    def _order(
        self, constraint: Constraint, pods: list[PodInfo], nodes: list[NodeInfo]
    ) -> list[list[Path]]:
        """Return the domains of each level that may be used, the fullest first."""
        needs: Amounts = {}
        for pod in pods:
            needs = added(needs, pod.requests)
        ratios: dict[Path, Any] = {}
        inside = {id(it) for it in nodes}
        for node_info in self.cluster.nodes:
            path = constraint.topology.path(node_info)
            for depth in range(1, len(path) + 1):
                ratios[path[:depth]] = 0
        for domain in ratios:
            room: Amounts = {}
            for node_info in self.cluster.nodes:
                path = constraint.topology.path(node_info)
                is_in = id(node_info) in inside and path[: len(domain)] == domain
                if is_in and node_info.is_schedulable:
                    here = added(node_info.idle, node_info.releasing)
                    room = added(room, {name: max(0, n) for name, n in here.items()})
            ratios[domain] = -_ratio(needs, room)
        base = constraint.preferred or constraint.required
        return [
            sorted((it for it in ratios if len(it) == depth), key=lambda it: _tree_key(it, ratios))
            for depth in range(1, base + 1)
        ]

    def _preferences(
        self, constraint: Constraint, name: str, order: list[list[Path]]
    ) -> Preferences | None:
        if not constraint.preferred:
            return None
        hosted = _hosted(self.cluster, constraint, self.hosts[name], constraint.preferred)
        domains = sorted(order[-1], key=lambda it: hosted.get(it, 0))
        rank = {domain: i + 1 for i, domain in enumerate(domains)}
        return {
            it.name: rank.get(constraint.topology.path(it)[: constraint.preferred], 0)
            for it in self.cluster.nodes
        }

    def _candidates(
        self, constraint: Constraint, name: str, order: list[list[Path]], nodes: list[NodeInfo]
    ) -> Iterator[tuple[int, Path]]:
        allowed = allowed_nodes(self.cluster, constraint, self.hosts[name])
        base = constraint.preferred or constraint.required
        for depth in range(base, max(constraint.required, 1) - 1, -1):
            hosted = _hosted(self.cluster, constraint, self.hosts[name], depth)
            usable = {
                constraint.topology.path(it)[:depth]
                for it in nodes
                if it in allowed or not constraint.required
            }
            for domain in sorted(order[depth - 1], key=lambda it: -hosted.get(it, 0)):
                if domain in usable:
                    yield depth, domain
        if not constraint.required:
            yield 0, ()


def allowed_nodes(
    cluster: ClusterInfo, constraint: Constraint, hosts: Mapping[str, int]
) -> list[NodeInfo]:
    """Return the nodes of the domains in which pods with a required level may be."""
    depth = constraint.required
    paths = {it.name: constraint.topology.path(it)[:depth] for it in cluster.nodes}
    own = {paths[name] for name, count in hosts.items() if count and paths[name]}
    return [it for it in cluster.nodes if paths[it.name] and (not own or paths[it.name] in own)]


def reach(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]
) -> list[list[NodeInfo]]:
    """Return the domains of which all pods must be in one; all nodes are one if they need not."""
    for name in reversed([*_scopes(podgroup, pods)]):
        constraint = podgroup.constraints[name]
        if constraint.required and all(name in _chain(podgroup, pod) for pod in pods):
            hosts = _hosts(podgroup, name, pods)
            return domains_of(constraint, allowed_nodes(cluster, constraint, hosts))
    return [cluster.nodes]


def domains_of(constraint: Constraint, nodes: list[NodeInfo]) -> list[list[NodeInfo]]:
    """Return nodes by their domain of the required level."""
    found: dict[Path, list[NodeInfo]] = {}
    for it in nodes:
        found.setdefault(constraint.topology.path(it)[: constraint.required], []).append(it)
    return [*found.values()]


def required_scopes(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]
) -> Iterator[tuple[list[PodInfo], list[list[NodeInfo]]]]:
    """Yield the pods of each sub-group that must be in one domain, and these domains."""
    for name in _scopes(podgroup, pods):
        constraint = podgroup.constraints[name]
        if constraint.required:
            mine = [pod for pod in pods if name in _chain(podgroup, pod)]
            allowed = allowed_nodes(cluster, constraint, _hosts(podgroup, name, pods))
            yield mine, domains_of(constraint, allowed)


def _ratio(needs: Amounts, room: Amounts) -> Any:
    parts: list[Any] = [0]
    for name, amount in needs.items():
        if amount and name != "pods":
            has = room.get(name, 0)
            parts.append(Fraction(amount) / has if has > 0 else inf)
    return max(parts)


def _scopes(podgroup: PodGroupInfo, pods: Iterable[PodInfo]) -> Iterator[str]:
    """Yield the sub-groups with a constraint around some pods, from the top down."""
    found = {name for pod in pods for name in _chain(podgroup, pod)}
    for name in ["", *_names(podgroup.root)]:
        if name in found:
            found.discard(name)
            yield name


def _names(part: SubGroup) -> Iterator[str]:
    yield part.name
    if not isinstance(part, PodSet):
        for child in part.children:
            yield from _names(child)


def _chain(podgroup: PodGroupInfo, pod: PodInfo) -> list[str]:
    return [name for name in _around(podgroup.root, pod, True) if name in podgroup.constraints]


def _around(part: SubGroup, pod: PodInfo, is_top: bool) -> list[str]:
    own = [] if is_top else [part.name]
    own = ["", *own] if is_top else own
    if isinstance(part, PodSet):
        return own if pod in part.pods or pod in part.expected else []
    for child in part.children:
        below = _around(child, pod, False)
        if below:
            return [*own, *below]
    return []


def _pods_of(part: SubGroup) -> list[PodInfo]:
    if isinstance(part, PodSet):
        return [*part.pods, *part.expected]
    return [pod for child in part.children for pod in _pods_of(child)]


def _hosts(podgroup: PodGroupInfo, name: str, tasks: Iterable[PodInfo]) -> dict[str, int]:
    """Count the pods of a sub-group by node; where one of the tasks is only nominated, 0."""
    found: dict[str, int] = {}
    for pod in podgroup.pods:
        if name in _chain(podgroup, pod) and pod.state in _MEMBERS and pod.node:
            found[pod.node] = found.get(pod.node, 0) + 1
    for pod in tasks:
        if name in _chain(podgroup, pod) and pod.nominated:
            found.setdefault(pod.nominated, 0)
    return found


def _hosted(
    cluster: ClusterInfo, constraint: Constraint, hosts: Mapping[str, int], depth: int
) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for it in cluster.nodes:
        path = constraint.topology.path(it)[:depth]
        if it.name in hosts and path:
            found[path] = found.get(path, 0) + (hosts[it.name] or 1)
    return found
