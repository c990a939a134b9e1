"""The GPUs of one node that reservation pods hold.

A reservation pod holds one GPU for the pods that share it. Without such pods it is about to be
deleted: its GPU is used and releasing. While it terminates, its GPU takes no further share: the
next reservation pod may get another GPU.
"""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple


class _ReservationPod(NamedTuple):
    """A reservation pod that has not finished."""

    ids: frozenset[str]  # of the GPU that it holds; none if it has no label
    is_terminating: bool
    is_releasing: bool  # it terminates in time


class HeldGpus:
    """The reservation pods of a node."""

    def __init__(self) -> None:
        self._pods: Final[list[_ReservationPod]] = []
        self._ids: Final[set[str]] = set()

    def add(self, ids: Iterable[str], *, is_terminating: bool, is_releasing: bool) -> None:
        """Add a reservation pod that has not finished, and the ids of its GPU."""
        pod = _ReservationPod(frozenset(ids), is_terminating, is_releasing)
        self._pods.append(pod)
        self._ids.update(pod.ids)

    @property
    def ids(self) -> AbstractSet[str]:
        """Return the ids of the GPUs."""
        return self._ids

    @property
    def terminating_ids(self) -> set[str]:
        """Return the ids of the GPUs of which all reservation pods terminate."""
        return self._ids.difference(*(pod.ids for pod in self._pods if not pod.is_terminating))

    def unshared(self, shared: Collection[str]) -> tuple[int, int]:
        """Return how many GPUs are held beside shared ones, and how many are releasing.

        Several reservation pods with one id hold several GPUs, of which pods share the first.
        """
        held = releasing = 0
        found: set[str] = set()
        for pod in sorted(self._pods, key=lambda it: it.is_terminating):
            own = pod.ids.intersection(shared)
            if own - found:
                found |= own
                continue
            held += 1
            releasing += pod.is_releasing if pod.is_terminating else not own
        return held, releasing
