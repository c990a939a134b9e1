"""Placement strategies: on which nodes the tasks of one attempt may be placed, and in which order.

A strategy yields alternatives, the best first and a bounded number of them. Each divides the tasks
into parts, and says for each part which nodes it may use and which of these come first. Whatever
asks where tasks could be placed asks it of the alternatives of their strategy.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from scheduler.core.gang import PodSetTasks, Tasks
from scheduler.core.model.resources import Bools, Floats
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.charges import NodeCharges


@dataclass(frozen=True, eq=False, slots=True)
class NodeSubset:
    """Some nodes, to which pods are restricted beside all that their own specs say.

    In one plan equal keys mean equal nodes in equal order: what is computed for a subset is cached
    by its key. The first entry of a key is the name of its strategy.
    """

    key: tuple[Hashable, ...]
    mask: Bools | None  # [node]; None is all nodes
    preference: Floats | None = None  # [node], the larger the better; it is added to the score

    def within(self, nodes: Bools) -> Bools:
        return nodes if self.mask is None else nodes & self.mask


ALL_NODES: Final = NodeSubset((), None)

# To which nodes the pods of a signature are restricted.
SubsetOf: TypeAlias = Callable[[int], NodeSubset]


class PlacementPart(NamedTuple):
    """Some tasks, and which nodes they may use."""

    subset_of: SubsetOf
    tasks: Tasks | None = None  # None is all tasks of the request
    positions: Sequence[int] = ()  # of these among the tasks of the request

    def tasks_of(self, request: Tasks) -> Iterable[tuple[int, PodSetTasks]]:
        """Return the tasks with their positions."""
        if self.tasks is None:
            return enumerate(request)
        return zip(self.positions, self.tasks, strict=True)


Alternative: TypeAlias = tuple[PlacementPart, ...]
# It is sent what was refused of each alternative, or None if the tasks did not fit.
Alternatives: TypeAlias = Generator[Alternative, PodGroupAllocation | None, None]


class PlacementStrategy(Protocol):
    @property
    def key(self) -> Hashable:
        """Strategies with equal keys yield the same alternatives for the same tasks."""
        ...

    @property
    def fits_by_count(self) -> bool:
        """Say whether tasks that need only resources fit if so many fit within its reach."""
        ...

    def reach(self, signature: int, /) -> NodeSubset:
        """Return all nodes that pods of a signature may use in any of the alternatives."""
        ...

    @property
    def has_others(self) -> bool:
        """Say whether there may be more alternatives than the first one."""
        ...

    def first(self, tasks: Tasks, /) -> Alternative:
        """Return the alternative that is tried first; mostly it is the one that is placed."""
        ...

    def others(self, tasks: Tasks, refused: PodGroupAllocation | None, /) -> Alternatives:
        """Yield the others, as the first one was refused, or None if its tasks did not fit."""
        ...


def _all_nodes(_signature: int) -> NodeSubset:
    return ALL_NODES


_ON_ALL_NODES: Final[Alternative] = (PlacementPart(_all_nodes),)


class _Everywhere:
    """All tasks may use all nodes."""

    key: Final = None
    fits_by_count: Final = True
    has_others: Final = False

    def reach(self, _signature: int, /) -> NodeSubset:
        return ALL_NODES

    def first(self, _tasks: Tasks, /) -> Alternative:
        return _ON_ALL_NODES

    def others(self, _tasks: Tasks, _refused: PodGroupAllocation | None, /) -> Alternatives:
        yield from ()


EVERYWHERE: Final[PlacementStrategy] = _Everywhere()


class LargerGpus:
    """Pods that request memory of GPUs may use all nodes, then those where they are charged less.

    After each refusal by a quota these are the nodes with GPUs that are larger than the smallest of
    those that the pods were placed on.
    """

    key: Final = None  # it follows from the signatures of the tasks
    fits_by_count: Final = True
    has_others: Final = True

    def __init__(self, snapshot: Snapshot, charges: NodeCharges) -> None:
        self._snapshot: Final = snapshot
        self._charges: Final = charges

    def reach(self, _signature: int, /) -> NodeSubset:
        return ALL_NODES

    def first(self, _tasks: Tasks, /) -> Alternative:
        return _ON_ALL_NODES

    def others(self, tasks: Tasks, refused: PodGroupAllocation | None, /) -> Alternatives:
        memory, larger = self._snapshot.nodes.gpu_memory, ALL_NODES

        def subset_of(signature: int) -> NodeSubset:
            is_by_node = self._snapshot.signatures[signature].is_charged_by_node
            return larger if is_by_node else ALL_NODES

        while refused is not None:
            pods = self._charges.pods_charged_by_node(tasks, refused)
            least = min([int(memory[it.node]) for it in pods])
            larger = NodeSubset(("larger GPUs", least), memory > least)
            refused = yield (PlacementPart(subset_of),)
