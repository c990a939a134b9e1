"""The shared GPUs of one node: GPUs that reservation pods hold, and which of them pods share.

A reservation pod holds one GPU for the pods that share it. Without such pods it is about to be
deleted: its GPU is used and releasing. While it terminates, its GPU takes no further share: the
next reservation pod may get another GPU.

Where the labels of pods name no GPU, their shares are packed onto the fullest GPUs that have so
much. A node has at most `_MOST_GPUS` shared GPUs: labels of any number of pods may name others, and
no node has so many. What is beyond has no GPU.
"""

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from trainer_kai.api.gpu_requests import WHOLE_GPU

_MOST_GPUS: Final = 1024


class _ReservationPod(NamedTuple):
    ids: frozenset[str]  # of the GPU that it holds; none if it has no label
    is_terminating: bool
    is_releasing: bool  # it terminates in time


class HeldGpus:
    def __init__(self) -> None:
        self._pods: Final[list[_ReservationPod]] = []
        self._ids: Final[set[str]] = set()

    def add(self, ids: Iterable[str], *, is_terminating: bool, is_releasing: bool) -> None:
        pod = _ReservationPod(frozenset(ids), is_terminating, is_releasing)
        self._pods.append(pod)
        self._ids.update(pod.ids)

    @property
    def ids(self) -> AbstractSet[str]:
        return self._ids

    @property
    def terminating_ids(self) -> set[str]:
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


class SharedGpus:
    """The shared GPUs of one node by id: what is used of each, in thousandths."""

    def __init__(self) -> None:
        self.used: Final[dict[str, int]] = {}
        self.releasing: Final[dict[str, int]] = {}
        self.made_up: Final[set[str]] = set()  # ids that no label names

    def add_named(self, id_: str, amount: int, *, is_releasing: bool) -> bool:
        """Add a share of the GPU with an id; say whether the node can have that GPU."""
        if id_ not in self.used and len(self.used) >= _MOST_GPUS:
            return False
        self._add(id_, amount, is_releasing=is_releasing)
        return True

    def add_packed(
        self, packing: "Packing", amount: int, count: int, *, is_releasing: bool = False
    ) -> tuple[str, ...]:
        """Add shares of so many different GPUs, of the fullest ones; return their ids."""
        ids = packing.take(amount, count, _MOST_GPUS - len(self.used))
        self.made_up.update(id_ for id_ in ids if id_ not in self.used)
        for id_ in ids:
            self._add(id_, amount, is_releasing=is_releasing)
        return ids

    def _add(self, id_: str, amount: int, *, is_releasing: bool) -> None:
        self.used[id_] = self.used.get(id_, 0) + amount
        self.releasing[id_] = self.releasing.get(id_, 0) + amount * is_releasing


class Packing:
    """GPUs of a node to which shares are added: the one with the most used that has so much."""

    def __init__(self, prefix: str, gpus: SharedGpus, used: Mapping[str, int]) -> None:
        self._prefix: Final = prefix
        self._gpus: Final = gpus
        self._ids: Final = sorted(used)
        self._new = 0
        # Sorted by what is used; of equal ones the first counts as the fuller one.
        self._bins: Final = sorted((used[id_], -number) for number, id_ in enumerate(self._ids))

    def take(self, amount: int, count: int, most_new: int) -> tuple[str, ...]:
        """Return different GPUs for shares of this amount; at most so many new ones."""
        bins = self._bins
        end = bisect_right(bins, (WHOLE_GPU - amount, 0))
        chosen = bins[max(end - count, 0) : end][::-1]
        del bins[max(end - count, 0) : end]
        numbers = [-number for _, number in chosen]
        for used, number in chosen:
            insort(bins, (used + amount, number))
        for _ in range(min(count - len(chosen), most_new)):
            numbers.append(len(self._ids))
            insort(bins, (amount, -len(self._ids)))
            self._ids.append(self._next_id())
        return tuple([self._ids[number] for number in numbers])

    def _next_id(self) -> str:
        while True:
            id_ = f"{self._prefix}-{self._new}"
            self._new += 1
            if id_ not in self._gpus.used:
                return id_
