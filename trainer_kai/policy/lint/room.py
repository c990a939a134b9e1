"""Whether the nodes there are could hold a pod, or what starts together, if nobody else were there.

Three rules for each unit: a pod against the largest node, all pods against all nodes, all pods
against the largest domain in which they must be. Where not even one node of a kind is there today
nobody knows what a new one would be like: that is worth a warning, and no more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.names import PODS
from trainer_kai.policy.demand import Amounts, spelt
from trainer_kai.policy.finding import Code, Finding
from trainer_kai.policy.lint.nodes import Nodes
from trainer_kai.policy.lint.subject import Part, container_path, count_path, pod_path, titles
from trainer_kai.policy.lint.work import Patience

__all__ = ["Near", "Room"]

_TOLD: Final = 3  # names in a message
_DOMAIN: Final = 8  # steps that it takes to find one


class Near(NamedTuple):
    """That pods must be in one domain."""

    path: str  # where it is asked for
    level: str  # what the level is called
    topology: str
    labels: tuple[str, ...]  # of the nodes, the coarsest first


class _Kind(NamedTuple):
    """Pods that ask for the same and that the same nodes take."""

    parts: tuple[Part, ...]
    asks: Amounts
    taken: int
    seats: tuple[tuple[int, int], ...]  # nodes, and how many such pods each of them holds

    @property
    def needed(self) -> int:
        return sum(part.needed for part in self.parts)

    def held(self, among: int) -> int:
        """Return how many of them some nodes hold."""
        return sum((nodes & among).bit_count() * each for nodes, each in self.seats)


class Room:
    """The nodes, and what was found out of them so far."""

    def __init__(self, nodes: Nodes, patience: Patience, *, grows: bool) -> None:
        self._nodes: Final = nodes
        self._patience: Final = patience
        self._blocks: Final = not grows
        self._known: Final[dict[tuple[tuple[tuple[str, int], ...], int], _Kind]] = {}

    def of_unit(
        self, parts: Sequence[Part], needs: Amounts, near: Near | None, *, all_needed: bool
    ) -> Iterator[Finding]:
        """Yield what is too large: a pod, else the whole, else the whole for a domain."""
        taken = [self._nodes.taking(part.pod) for part in parts]
        lone: list[Finding] = []
        for part, nodes in zip(parts, taken, strict=True):
            lone += self._of_pod(part, nodes, needed=all_needed)
        if lone:
            yield from lone
            return
        kinds = self._kinds(parts, taken) if all_needed else ()
        if kinds is None:
            return
        whole = [*self._of_all(parts, kinds, needs, taken)]
        yield from whole
        if near is not None and not whole:
            yield from self._of_domains(parts, kinds, needs, near, taken)

    def of_leaf(self, part: Part, near: Near) -> Iterator[Finding]:
        """Yield whether the pods of one Job are too many for a domain."""
        one = part._replace(member=part.member._replace(replicas=1))
        taken = [self._nodes.taking(part.pod)]
        kinds = self._kinds([one], taken)
        if kinds is not None and kinds[0].seats:
            needs = {name: amount * one.needed for name, amount in one.asks.items()}
            yield from self._of_domains([one], kinds, needs, near, taken)

    def _of_pod(self, part: Part, taken: int, *, needed: bool) -> Iterator[Finding]:
        """Yield why no node holds a pod alone."""
        if not taken:
            yield _today(pod_path(part.place), self._unmatched(part))
            return
        kind = self._kind(part, taken)
        if kind is None or kind.seats:
            return
        most = self._most(part.asks, taken)
        over = [name for name, amount in part.asks.items() if amount > most[name]]
        if not over:
            message = f"no node has all that a pod of {part.job.name} asks for; ask for less"
            path = pod_path(part.place)
            yield Finding(path, message, self._blocks and needed, Code.POD_TOO_LARGE)
            return
        name = max(over, key=lambda it: (not most[it], part.asks[it] / max(most[it], 1)))
        path = container_path(part, name)
        if not most[name]:
            yield _today(path, f"no node that takes {part.job.name} has any {name} today")
            return
        message = (
            f"each pod of {part.job.name} asks for {spelt(name, part.asks[name])} {name}, and "
            f"{_largest(taken)} has {spelt(name, most[name])}; ask for that or less"
        )
        yield Finding(path, message, self._blocks and needed, Code.POD_TOO_LARGE)

    def _of_all(
        self, parts: Sequence[Part], kinds: Sequence[_Kind], needs: Amounts, taken: Iterable[int]
    ) -> Iterator[Finding]:
        """Yield whether all nodes together are too small."""
        for kind in kinds:
            seats = kind.held(kind.taken)
            if kind.needed > seats:
                message = (
                    f"{kind.needed} pods of {titles(kind.parts)} start together, and "
                    f"{_all(kind.taken, 'hold')} {seats}; ask for {seats} or fewer"
                )
                path = count_path(kind.parts)
                yield Finding(path, message, self._blocks, Code.UNIT_TOO_LARGE)
                return
        among = _union(taken)
        name = next(iter(self._lacking(needs, among)), None)
        if name is not None:
            has = spelt(name, self._sum(name, among))
            message = (
                f"what starts together asks for {spelt(name, needs[name])} {name}, and "
                f"{_all(among, 'have')} {has}; ask for that or less"
            )
            yield Finding(count_path(parts), message, self._blocks, Code.UNIT_TOO_LARGE)

    def _of_domains(
        self,
        parts: Sequence[Part],
        kinds: Sequence[_Kind],
        needs: Amounts,
        near: Near,
        taken: Iterable[int],
    ) -> Iterator[Finding]:
        """Yield whether every domain is too small."""
        among = _union(taken)
        domains = self._domains(near, among, are_alike=len(kinds) == 1)
        if domains is None:
            return
        if not domains:
            few = len(near.labels) == 1
            labels = ("the label " if few else "all of the labels ") + ", ".join(near.labels)
            yield _today(near.path, f"no node that takes them has {labels} today")
            return
        best = 0
        for domain in sorted(domains, key=int.bit_count, reverse=True):
            if not self._patience.takes(sum(len(kind.seats) for kind in kinds) + 4):
                return
            held = [kind.held(domain) for kind in kinds]
            best = max(best, *held, 0)
            enough = all(kind.needed <= one for kind, one in zip(kinds, held, strict=True))
            if enough and (len(kinds) == 1 or not any(self._lacking(needs, domain & among))):
                return
        count = sum(part.needed for part in parts)
        where = f"one {near.level} of topology {near.topology}"
        message = f"{count} pods of {titles(parts)} must be in {where}, and none holds them"
        if len(kinds) == 1:
            message = message.removesuffix("none holds them")
            message += f"the largest holds {best}; ask for {best} or fewer, or a coarser level"
        yield Finding(near.path, message, self._blocks, Code.DOMAIN_TOO_SMALL)

    def _domains(self, near: Near, among: int, *, are_alike: bool) -> list[int] | None:
        """Return the domains; where each is a node, one of each size will do for pods alike."""
        if are_alike and self._nodes.tells_apart(near.labels[-1]):
            among = self._nodes.having(near.labels, among)
            sizes = (nodes & among for _, nodes in self._nodes.alike())
            return [nodes & -nodes for nodes in sizes if nodes]
        found = []
        for domain in self._nodes.domains(near.labels, among):
            if not self._patience.takes(_DOMAIN + len(near.labels)):
                return None
            found.append(domain)
        return found

    def _kinds(self, parts: Sequence[Part], taken: Sequence[int]) -> tuple[_Kind, ...] | None:
        """Put parts together that ask for the same of the same nodes."""
        found: dict[tuple[tuple[tuple[str, int], ...], int], _Kind] = {}
        for part, nodes in zip(parts, taken, strict=True):
            kind = self._kind(part, nodes)
            if kind is None:
                return None
            key = _key(part, nodes)
            before = found[key].parts if key in found else ()
            found[key] = kind._replace(parts=(*before, part))
        return tuple(found.values())

    def _kind(self, part: Part, taken: int) -> _Kind | None:
        """Return how many such pods each node holds; None if that takes too long."""
        key = _key(part, taken)
        if key in self._known:
            return self._known[key]
        if not self._patience.takes(self._nodes.shapes * (4 + len(part.asks))):
            return None
        seats = []
        for has, nodes in self._nodes.alike():
            each = _seats(part.asks, has) if nodes & taken else 0
            if each:
                seats.append((nodes & taken, each))
        self._known[key] = _Kind((), part.asks, taken, tuple(seats))
        return self._known[key]

    def _most(self, asks: Amounts, among: int) -> Mapping[str, int]:
        """Return the most that any of some nodes has of what is asked for."""
        alike = [has for has, nodes in self._nodes.alike() if nodes & among]
        return {name: max(has.get(name, 0) for has in alike) for name in asks}

    def _lacking(self, needs: Amounts, among: int) -> Iterator[str]:
        """Yield of what some nodes have too little in all; nothing where it takes too long."""
        if self._patience.takes(self._nodes.shapes * (2 + len(needs))):
            for name, amount in needs.items():
                if amount > self._sum(name, among):
                    yield name

    def _sum(self, name: str, among: int) -> int:
        return sum(
            has.get(name, 0) * (nodes & among).bit_count() for has, nodes in self._nodes.alike()
        )

    def _unmatched(self, part: Part) -> str:
        """Say why no node takes a pod."""
        nodes, name = self._nodes, part.job.name
        if not nodes.all:
            return "there is no node today"
        selected = nodes.selected(part.pod)
        if selected:
            taints = _listed(nodes.taints(selected))
            return f"{name} tolerates no node that it selects today; their taints are {taints}"
        for label, value in part.pod.node_selector.items():
            values = nodes.values(label)
            if value not in values:
                are = "are" if len(values) > 1 else "is"
                right = f"; there {are} {_listed(values)}" if values else ""
                return f"no node has {label}={value} today, which {name} selects{right}"
        return f"no node is what {name} selects today"


def _today(path: str, message: str) -> Finding:
    return Finding(path, f"{message}; it waits for one", code=Code.NO_NODE_TODAY)


def _key(part: Part, taken: int) -> tuple[tuple[tuple[str, int], ...], int]:
    return tuple(sorted(part.asks.items())), taken


def _seats(asks: Amounts, has: Mapping[str, int]) -> int:
    """Return how many such pods a node holds."""
    seats = has.get(PODS, 2**63) // 1000
    for name, amount in asks.items():
        seats = min(seats, has.get(name, 0) // amount)
    return seats


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def _largest(nodes: int) -> str:
    count = nodes.bit_count()
    return "the one node for it" if count == 1 else f"the largest of {count} nodes for it"


def _all(nodes: int, verb: str) -> str:
    count = nodes.bit_count()
    if count == 1:
        return f"the one node for them {'has' if verb == 'have' else f'{verb}s'}"
    return f"the {count} nodes for them {verb}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _TOLD
    return ", ".join(names[:_TOLD]) + (f" and {more} more" if more > 0 else "")
