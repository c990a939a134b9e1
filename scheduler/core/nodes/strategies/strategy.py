"""Placement strategies: on which nodes the tasks of one attempt may be placed, and in which order.

A strategy yields alternatives, the best first and a bounded number of them. Each divides the tasks
into parts, and says for each part which nodes it may use and which of these come first. Whatever
asks where tasks could be placed asks it of the alternatives of their strategy.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from scheduler.core.gang import PodSetTasks, SignatureRuns, Tasks
from scheduler.core.model.rejections import DomainShortage
from scheduler.core.model.resources import Bools, Floats, Ints
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
    # Of all that alternatives may use, [node]: each uses one of these; NONE is in none of them.
    domains: Ints | None = None

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


# Of equal requests all fit, or none: the signatures, and the key of the strategy.
RequestKey: TypeAlias = tuple[SignatureRuns, Hashable]


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
    def only(self) -> Alternative | None:
        """Return the alternative if there is never more than this one."""
        ...

    @property
    def unrestricted(self) -> Alternative | None:
        """Return where tasks could be if they need not be together; None if they need not."""
        ...

    def shortages(self, tasks: Tasks, /) -> Sequence[DomainShortage]:
        """Return for each sub-group that must be together how many of its pods fit together."""
        ...

    def alternatives(self, tasks: Tasks, /) -> Alternatives:
        """Yield the alternatives; there is a first one.

        When the first is asked for, nothing of the tasks is in the statement. When another one is,
        what was placed before a failure still is; of a refusal nothing is.
        """
        ...


def _all_nodes(_signature: int) -> NodeSubset:
    return ALL_NODES


_ON_ALL_NODES: Final[Alternative] = (PlacementPart(_all_nodes),)


class _Everywhere:
    """All tasks may use all nodes."""

    key: Final = None
    fits_by_count: Final = True
    only: Final = _ON_ALL_NODES
    unrestricted: Final = None

    def reach(self, _signature: int, /) -> NodeSubset:
        return ALL_NODES

    def shortages(self, _tasks: Tasks, /) -> Sequence[DomainShortage]:
        return ()

    def alternatives(self, _tasks: Tasks, /) -> Alternatives:
        yield _ON_ALL_NODES


EVERYWHERE: Final[PlacementStrategy] = _Everywhere()


class LargerGpus:
    """Pods that request memory of GPUs may use all nodes, then those where they are charged less.

    After each refusal by a quota, the pods may use only nodes with GPUs that are larger than the
    smallest GPU of the placement that was refused.
    """

    key: Final = None  # it follows from the signatures of the tasks
    fits_by_count: Final = True
    only: Final = None
    unrestricted: Final = None

    def __init__(self, snapshot: Snapshot, charges: NodeCharges) -> None:
        self._snapshot: Final = snapshot
        self._charges: Final = charges

    def reach(self, _signature: int, /) -> NodeSubset:
        return ALL_NODES

    def shortages(self, _tasks: Tasks, /) -> Sequence[DomainShortage]:
        return ()

    def alternatives(self, tasks: Tasks, /) -> Alternatives:
        memory = self._snapshot.nodes.gpu_memory
        refused = yield _ON_ALL_NODES
        while refused is not None:
            pods = self._charges.pods_charged_by_node(tasks, refused)
            least = min([int(memory[it.node]) for it in pods])
            larger = NodeSubset(("larger GPUs", least), memory > least)
            refused = yield (PlacementPart(partial(self._subset_of, larger)),)

    def _subset_of(self, larger: NodeSubset, signature: int) -> NodeSubset:
        is_by_node = self._snapshot.signatures[signature].is_charged_by_node
        return larger if is_by_node else ALL_NODES
