"""Which nodes there are, kept so that what a pod could have at most is found without a walk.

A set of nodes is a number with a bit for each, so a question costs as much as there are different
nodes, not as there are nodes. All answers are upper bounds: cordons and conditions pass, and what
is not looked at (volumes, other pods, ports, comparisons of labels) keeps nobody out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from trainer_kai.api.affinity import Toleration
from trainer_kai.api.names import CLOUD_NODE_PREFIX, CPU, NODE_PREFIX
from trainer_kai.api.node import Node, Taint
from trainer_kai.api.pod import PodSpec
from trainer_kai.api.quantity import QuantityError, milli, whole
from trainer_kai.api.selector import NodeSelectorTerm, Requirement

__all__ = ["Nodes"]

K = TypeVar("K")

_KEEPING_OUT: Final = ("NoSchedule", "NoExecute")
_PASSING: Final = (NODE_PREFIX, CLOUD_NODE_PREFIX)  # taints of states
_NAME: Final = "metadata.name"
_COMPARED: Final = 400  # taints with tolerations, for one pod

Shape: TypeAlias = tuple[tuple[str, int], ...]  # what nodes have that are alike, in thousandths


class _Known(NamedTuple):
    labels: Mapping[str, str]
    taints: frozenset[tuple[str, str, str]]
    shape: Shape


class Nodes:
    """All nodes, as they were told last."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._bits: Final[dict[str, int]] = {}
        self._free: Final[list[int]] = []
        self._known: Final[list[_Known | None]] = []  # by bit
        self._all = 0
        self._labels: Final[dict[str, dict[str, int]]] = {}
        self._having: Final[dict[str, int]] = {}  # by label, whatever its value
        self._taints: Final[dict[tuple[str, str, str], int]] = {}
        self._shapes: Final[dict[Shape, int]] = {}
        self._amounts: Final[dict[Shape, Mapping[str, int]]] = {}
        for node in nodes:
            self.put(node)

    @property
    def all(self) -> int:
        """Return the set of all nodes."""
        return self._all

    @property
    def shapes(self) -> int:
        """Return how many different nodes there are."""
        return len(self._shapes)

    def alike(self) -> Iterator[tuple[Mapping[str, int], int]]:
        """Yield what nodes have, in thousandths, and which ones have it."""
        for shape, nodes in self._shapes.items():
            yield self._amounts[shape], nodes

    def put(self, node: Node) -> None:
        """Take a node as it is now; one that cannot be read is none."""
        name = node.metadata.name
        known = _read(node)
        bit = self._bits.get(name)
        if bit is not None and self._known[bit] == known:
            return
        self.drop(name)
        if known is None:
            return
        bit = self._free.pop() if self._free else len(self._known)
        if bit == len(self._known):
            self._known.append(None)
        self._bits[name], self._known[bit] = bit, known
        self._all |= 1 << bit
        self._turn(known, 1 << bit)

    def drop(self, name: str) -> None:
        """Forget a node."""
        bit = self._bits.pop(name, None)
        known = None if bit is None else self._known[bit]
        if bit is not None and known is not None:
            self._known[bit] = None
            self._free.append(bit)
            self._all ^= 1 << bit
            self._turn(known, 1 << bit)

    def taking(self, pod: PodSpec) -> int:
        """Return the nodes that could take a pod, whatever it asks for."""
        found = self.selected(pod)
        return found and found & ~self._kept_out(pod.tolerations)

    def selected(self, pod: PodSpec) -> int:
        """Return the nodes that a pod selects, whatever they are tainted with."""
        found = self._all
        for label, value in pod.node_selector.items():
            found &= self._labels.get(label, {}).get(value, 0)
        affinity = pod.affinity.node_affinity if pod.affinity else None
        if found and affinity is not None and affinity.required is not None:
            either = 0
            for term in affinity.required.node_selector_terms:
                either |= self._of_term(term)
            found &= either
        return found

    def values(self, label: str) -> tuple[str, ...]:
        """Return the values that nodes have for a label."""
        return tuple(sorted(self._labels.get(label, ())))

    def taints(self, among: int) -> tuple[str, ...]:
        """Return which taints keep pods from some nodes, as kubectl writes them."""
        found = sorted(taint for taint, nodes in self._taints.items() if nodes & among)
        return tuple(f"{key}={value}:{effect}" for key, value, effect in found)

    def tells_apart(self, label: str) -> bool:
        """Say whether no two nodes have the same value for a label."""
        return len(self._labels.get(label, ())) == self._having.get(label, 0).bit_count()

    def having(self, labels: Sequence[str], among: int) -> int:
        """Return the nodes that have all of some labels."""
        for label in labels:
            among &= self._having.get(label, 0)
        return among

    def domains(self, labels: Sequence[str], among: int) -> Iterator[int]:
        """Yield the nodes that have the same values for all labels; none without one of them."""
        left = self.having(labels, among)
        while left:
            known = self._known[(left & -left).bit_length() - 1]
            domain = left
            if known is not None:
                for label in labels:
                    domain &= self._labels[label][known.labels[label]]
            yield domain
            left &= ~domain

    def _turn(self, known: _Known, bit: int) -> None:
        """Add a node where it is not, or take it out; what nobody has is forgotten."""
        for label, value in known.labels.items():
            _flip(self._having, label, bit)
            _flip(self._labels.setdefault(label, {}), value, bit)
            if label not in self._having:
                del self._labels[label]
        for taint in known.taints:
            _flip(self._taints, taint, bit)
        _flip(self._shapes, known.shape, bit)
        if known.shape not in self._shapes:
            del self._amounts[known.shape]
        else:
            self._amounts.setdefault(known.shape, dict(known.shape))

    def _kept_out(self, tolerations: Sequence[Toleration]) -> int:
        """Return the nodes with a taint that is not tolerated; where that takes long, none."""
        if len(self._taints) * (len(tolerations) + 1) > _COMPARED:
            return 0
        found = 0
        for taint, nodes in self._taints.items():
            if not any(_tolerates(toleration, taint) for toleration in tolerations):
                found |= nodes
        return found

    def _of_term(self, term: NodeSelectorTerm) -> int:
        """Return the nodes of which all of it may be true; of a term without wishes none."""
        if not term.match_expressions and not term.match_fields:
            return 0
        found = self._all
        for wish in term.match_expressions:
            found &= self._of_wish(wish)
        for wish in term.match_fields:
            if wish.key == _NAME and wish.operator == "In":
                found &= self._named(wish.values)
        return found

    def _named(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= 1 << self._bits[name] if name in self._bits else 0
        return found

    def _of_wish(self, wish: Requirement) -> int:
        values = self._labels.get(wish.key, {})
        if wish.operator in {"In", "NotIn"}:
            found = 0
            for value in wish.values:
                found |= values.get(value, 0)
            return found if wish.operator == "In" else self._all & ~found
        if wish.operator == "DoesNotExist":
            return self._all & ~self._having.get(wish.key, 0)
        return self._having.get(wish.key, 0)  # Exists; and for Gt and Lt it must be there at least


def _flip(sets: dict[K, int], key: K, bit: int) -> None:
    """Put a node into a set, or take it out; a set without nodes is forgotten."""
    found = sets.get(key, 0) ^ bit
    if found:
        sets[key] = found
    else:
        del sets[key]


def _read(node: Node) -> _Known | None:
    try:
        allocatable = {
            name: max(milli(quantity) if name == CPU else whole(quantity) * 1000, 0)
            for name, quantity in node.status.allocatable.items()
        }
    except QuantityError:
        return None
    taints = frozenset((it.key, it.value, it.effect) for it in node.spec.taints if _counts(it))
    return _Known(node.metadata.labels, taints, Shape(tuple(sorted(allocatable.items()))))


def _counts(taint: Taint) -> bool:
    """Say whether a taint is there to stay, as far as anybody can tell."""
    return taint.effect in _KEEPING_OUT and not taint.key.startswith(_PASSING)


def _tolerates(toleration: Toleration, taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if toleration.effect not in {"", effect}:
        return False
    if toleration.operator in {"", "Equal"}:
        return (toleration.key, toleration.value) == (key, value)
    return toleration.key in {"", key}
