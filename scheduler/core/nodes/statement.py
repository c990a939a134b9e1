"""The statement: changes of the nodes in the order in which they are made; rolled back exactly.

What a change is for the resources of a node, the relations between pods or the devices of a node is
known to the participants. The statement tells each of them about the changes that concern it.
A reader that caches something about nodes finds in `changed_nodes` which nodes have changed since.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from scheduler.core.model.resources import HeldDevices


class Change(NamedTuple):
    """So many pods of a signature are added to a node, or, if negative, removed."""

    node: int
    signature: int
    pod_count: int
    on_idle: bool  # from what is idle as well, not only from what is free
    is_eviction: bool = False  # their relations to other pods stay
    held: HeldDevices = ()  # each of the pods holds these

    def reversed(self) -> "Change":
        return self._replace(pod_count=-self.pod_count)


class Participant(Protocol):
    """Some of what pods use on nodes; a reversed change leaves no trace, whatever came between."""

    def concerns(self, signature: int, /) -> bool:
        """Say whether pods of a signature use any of it."""
        ...

    def add(self, change: Change, /) -> None: ...

    def undo(self, change: Change, /) -> None:
        self.add(change.reversed())


P = TypeVar("P", bound=Participant)


class Concerned(dict[int, tuple[P, ...]]):
    """The participants that pods concern, by signature; each is asked once for each signature."""

    def __init__(self, participants: Sequence[P]) -> None:
        self._participants: Final = participants

    def __missing__(self, signature: int) -> tuple[P, ...]:
        concerned = self[signature] = tuple(
            [it for it in self._participants if it.concerns(signature)]
        )
        return concerned


class Statement:
    def __init__(self, participants: Sequence[Participant]) -> None:
        self.changed_nodes: Final[list[int]] = []  # nodes, in the order in which they changed
        self._concerned: Final = Concerned(participants)
        self._log: Final[list[Change]] = []

    @property
    def checkpoint(self) -> int:
        return len(self._log)

    def allocate(
        self, node: int, signature: int, *, on_idle: bool, count: int = 1, held: HeldDevices = ()
    ) -> None:
        self._write(Change(node, signature, count, on_idle, False, held))  # noqa: FBT003

    def deallocate(self, node: int, signature: int, held: HeldDevices = ()) -> None:
        """Remove a pod from a node; its resources are idle."""
        self._write(Change(node, signature, -1, on_idle=True, held=held))

    def evict(self, node: int, signature: int, held: HeldDevices = ()) -> None:
        """Evict a pod: its resources are releasing, and its relations to other pods stay."""
        self._write(Change(node, signature, -1, on_idle=False, is_eviction=True, held=held))

    def pipeline(self, node: int, signature: int, count: int = 1, held: HeldDevices = ()) -> None:
        """Let pods that were added to a node wait for what is being released there."""
        self._write(Change(node, signature, -count, on_idle=True, held=held))
        self._write(Change(node, signature, count, on_idle=False, held=held))

    def roll_back(self, checkpoint: int) -> None:
        while len(self._log) > checkpoint:
            change = self._log.pop()
            for participant in self._concerned[change.signature]:
                participant.undo(change)
            self.changed_nodes.append(change.node)

    def was_last_allocated(self, node: int, signature: int) -> bool:
        last = self._log[-1] if self._log else None
        return last is not None and last[:2] == (node, signature) and last.pod_count > 0

    def _write(self, change: Change) -> None:
        self._log.append(change)
        for participant in self._concerned[change.signature]:
            participant.add(change)
        self.changed_nodes.append(change.node)
