"""What a cluster is made of, as the reference sees it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.support.reference.amounts import Amounts, Axes, axes

__all__ = ["Budget", "Cluster", "Group", "Leaf", "Machine", "Part", "Pod", "Queue", "Unit"]


@dataclass(eq=False)
class Machine:
    """A node."""

    name: str
    labels: Mapping[str, str]
    taints: list[Mapping[str, str]]
    usable: bool
    whole: Amounts
    idle: Amounts
    releasing: Amounts
    is_ready: bool = True


@dataclass(eq=False)
class Pod:
    """A pod, or one that will exist later.

    Its state is one of: waiting, gated, there, succeeded, old (there, of an older attempt), other;
    and, once decided: bound, nominated, reserved, evicted. One that does not exist is later until
    it is decided.
    """

    namespace: str
    name: str
    uid: str
    created: str
    labels: Mapping[str, str]  # of a later one those of its template
    spec: Mapping[str, Any]
    needs: Amounts
    state: str
    node: str = ""  # where it is, or was put
    nominated: str = ""
    going: bool = False
    releases: bool = False  # it is going, and expected to
    is_stuck: bool = False  # it is going, and was expected to be gone
    later: bool = False


@dataclass(eq=False)
class Leaf:
    """A sub-group of pods."""

    name: str
    minimum: int
    pods: list[Pod] = field(default_factory=list)
    later: list[Pod] = field(default_factory=list)


@dataclass(eq=False)
class Group:
    """A sub-group of sub-groups."""

    name: str
    minimum: int
    children: list["Part"] = field(default_factory=list)


Part: TypeAlias = Leaf | Group


@dataclass(eq=False)
class Unit:
    """What starts together or not at all."""

    namespace: str
    name: str
    uid: str
    created: str
    queue: str
    priority: int
    preemptible: bool
    root: Part
    broken: bool = False  # its group or sub-groups cannot be meant
    owner: str = ""  # the JobSet that it is a part of
    patient: bool = False  # it takes nothing from others yet
    is_held: bool = False  # that is what keeps it from taking something
    awaits_its_own: bool = False  # what goes of its queues is in its way
    stays: bool = False  # another controller looks after its TrainJob
    is_unevictable: bool = False  # it may be preempted by its word, and cannot be evicted
    began: str = ""  # when it began to run, where that is known
    saved: str = ""  # when it saved its work last, where it says so
    has_strays: bool = False  # pods wait that name a sub-group which it does not have
    # Such pods that do not wait.
    strays: list[tuple[Mapping[str, Any], Pod]] = field(default_factory=list)

    @property
    def leaves(self) -> list[Leaf]:
        """Return all its leaves."""
        return list(_leaves(self.root))

    @property
    def pods(self) -> list[Pod]:
        """Return all its pods, later ones too."""
        return [pod for leaf in self.leaves for pod in [*leaf.pods, *leaf.later]]

    @property
    def waits(self) -> bool:
        """Say whether a pod of it waits."""
        return any(pod.state == "waiting" for pod in self.pods)


@dataclass(eq=False)
class Queue:
    """A queue; each triple is CPU, memory, GPU."""

    name: str
    uid: str
    created: str
    parent: str
    priority: int
    quota: tuple[Any, ...]
    limit: tuple[Any, ...]
    weight: tuple[Any, ...]
    children: list["Queue"] = field(default_factory=list)
    fair: list[int] = field(default_factory=lambda: [0, 0, 0])
    allocated: list[int] = field(default_factory=lambda: [0, 0, 0])
    fixed: list[int] = field(default_factory=lambda: [0, 0, 0])
    unevictable: list[int] = field(default_factory=lambda: [0, 0, 0])  # in fixed, of its own units
    requested: list[int] = field(default_factory=lambda: [0, 0, 0])
    left: list[int] = field(default_factory=lambda: [0, 0, 0])  # that goes, and nobody waits for
    left_at: dict[str, list[int]] = field(default_factory=dict)  # of that, by node
    lost: list[int] = field(default_factory=lambda: [0, 0, 0])  # that goes for somebody
    goal: str = ""  # of reclaim among those below it
    preempt_min: str = ""
    reclaim_min: str = ""


@dataclass(eq=False)
class Budget:
    """Pods of which so many may still go."""

    pods: list[Pod]
    left: int


@dataclass(eq=False)
class Cluster:
    """All of it."""

    machines: list[Machine]
    pods: list[Pod]  # everybody's, on a node or not; finished ones are left out
    units: list[Unit]
    queues: dict[str, Queue]
    total: Axes
    now: str
    victims: str = "kai"
    budgets: list[Budget] = field(default_factory=list)
    keeps_budgets: bool = False  # in reclaim as well

    def may_go(self, pods: Iterable[Pod]) -> bool:
        """Say whether budgets let all of these pods go."""
        gone = set(pods)
        return all(len(gone.intersection(it.pods)) <= max(it.left, 0) for it in self.budgets)

    def way_up(self, name: str) -> list[Queue]:
        """Return a queue and those above it."""
        way: list[Queue] = []
        while name in self.queues and self.queues[name] not in way:
            way.append(self.queues[name])
            name = self.queues[name].parent
        return way

    def is_misconfigured(self, unit: Unit) -> bool:
        """Say whether a unit or its queue cannot be meant."""
        way = self.way_up(unit.queue)
        is_inner = unit.queue in self.queues and bool(self.queues[unit.queue].children)
        is_circle = bool(way) and way[-1].parent in [queue.name for queue in way]
        return unit.broken or is_inner or is_circle

    def hold(self, unit: Unit, pod: Pod) -> None:
        """Count a pod as allocated, on all levels."""
        for queue in self.way_up(unit.queue):
            for i, amount in enumerate(axes(pod.needs)):
                queue.allocated[i] += amount
                queue.fixed[i] += 0 if unit.preemptible else amount


def _leaves(part: Part) -> Iterator[Leaf]:
    if isinstance(part, Leaf):
        yield part
    else:
        for child in part.children:
            yield from _leaves(child)
