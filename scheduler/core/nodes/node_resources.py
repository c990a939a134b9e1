"""What is idle on the nodes, and what is free: idle, or as soon as terminating pods are gone."""

from typing import Final

import numpy as np

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import Ints
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.statement import Change, Participant

UNLIMITED: Final = 2**40  # how many pods fit that request nothing


class NodeResources(Participant):
    def __init__(self, snapshot: Snapshot) -> None:
        self.idle: Final[Ints] = snapshot.nodes.idle.copy()
        self.free: Final[Ints] = self.idle + snapshot.nodes.releasing  # for pods that can wait
        self._requests: Final = [_request_arrays(signature) for signature in snapshot.signatures]

    def concerns(self, _signature: int, /) -> bool:
        return True

    def add(self, change: Change, /) -> None:
        node, signature, count, on_idle, _, _ = change
        request = self._requests[signature][0]
        apply = np.subtract if count > 0 else np.add
        if count not in (1, -1):  # of most there is one
            request = abs(count) * request
        free = self.free[node]
        apply(free, request, free)
        if on_idle:
            idle = self.idle[node]
            apply(idle, request, idle)

    def reserve(self, nodes: Ints, amounts: Ints) -> None:
        np.subtract.at(self.free, nodes, amounts)

    def requests(self, signature: int) -> tuple[tuple[int, int], ...]:
        """Return how much of which resource a pod requests, where that is not zero."""
        return self._requests[signature][1]

    def fits_idle(self, node: int, signature: int) -> bool:
        return has_enough(self.idle[node].tolist(), self._requests[signature][1])

    def fitting(self, signature: int) -> Ints:
        """Return how many more pods fit into what is free of each node, [node]."""
        requests = self._requests[signature][1]
        if not requests:
            return np.full(len(self.free), UNLIMITED, dtype=np.int64)
        columns = [r for r, _ in requests]
        each: Ints = self.free[:, columns] // np.array([n for _, n in requests])
        fitting: Ints = each.min(axis=1).clip(min=0)
        return fitting


def has_enough(amounts: list[int], requested: tuple[tuple[int, int], ...]) -> bool:
    for resource, amount in requested:  # noqa: SIM110 - called for every pod, and so twice as fast
        if amounts[resource] < amount:
            return False
    return True


def _request_arrays(signature: SchedulingSignature) -> tuple[Ints, tuple[tuple[int, int], ...]]:
    requested = tuple((r, amount) for r, amount in enumerate(signature.request) if amount)
    return np.array(signature.request, dtype=np.int64), requested
