"""Quantities as whole numbers in columns: which columns there are, and what a pod asks of each.

Who asks for more than the largest node could have asks for one more than that. Sums of such numbers
over pods or nodes are the matter of `scheduler.core.sums`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.model import NONE, Ints, ResourceColumns, ResourceKind
from trainer_kai.api.names import CPU, MEMORY, MIG_PREFIX, PODS
from trainer_kai.api.quantity import Quantity, milli, whole
from trainer_kai.policy.demand import ResourceAmounts

__all__ = ["MAX_AMOUNT", "MAX_QUEUE_REQUEST", "ResourceEncoder", "UnknownResources"]

MAX_AMOUNT: Final = 2**50  # of what a pod asks for; a node has less
MAX_QUEUE_REQUEST: Final = 2**45  # of what a queue is charged for one pod

UnknownResources: TypeAlias = tuple[
    tuple[str, int], ...
]  # what no node has, and how much of it is asked

_FIXED_COLUMNS: Final = (CPU, MEMORY, PODS)
_MIG: Final = re.compile(re.escape(MIG_PREFIX) + r"([1-9][0-9]?)g\.[0-9]{1,4}gb")


class ResourceEncoder:
    """The resources of nodes: CPU, memory, pods, then the others by name."""

    def __init__(self, names: Iterable[str], gpus: Sequence[str]) -> None:
        self.gpus: Final = frozenset(gpus)
        self.names: Final = (*_FIXED_COLUMNS, *sorted(set(names) - {*_FIXED_COLUMNS}))
        self._column_of: Final = {name: column for column, name in enumerate(self.names)}
        self._in_thousandths: Final = frozenset({CPU, *gpus})  # those that count in thousandths
        kinds = [_queue_resource(name, gpus) for name in self.names]
        self.resource_columns: Final = ResourceColumns(
            names=self.names,
            kinds=tuple(kind for kind, _ in kinds),
            weights=tuple(weight for _, weight in kinds),
            cpu=0,
            pods=2,
            gpus=tuple(self._column_of[name] for name in gpus if name in self._column_of),
        )
        weighted = np.zeros((len(self.names), len(ResourceKind)), dtype=np.int64)
        for column, (kind, weight) in enumerate(kinds):
            if kind != NONE:
                weighted[column, kind] = weight
        self._weighted: Final[Ints] = weighted  # [resource, kind]
        self._weights: Final[Ints] = np.maximum(weighted.sum(axis=1), 1)

    def request(self, amounts: ResourceAmounts) -> list[int]:
        """Return what a pod asks for, and its place; amounts are in thousandths."""
        row = [0] * len(self.names)
        for name, thousandths in amounts.items():
            column = self._column_of.get(name)
            if column is not None and thousandths > 0:
                units = thousandths if name in self._in_thousandths else -(-thousandths // 1000)
                row[column] = min(units, MAX_AMOUNT)
        row[2] = 1
        return row

    def unknown_resources(self, amounts: ResourceAmounts) -> UnknownResources:
        """Return what a pod asks for that no node has."""
        return tuple(
            (name, min(-(-amounts[name] // 1000), MAX_AMOUNT))
            for name in sorted(amounts)
            if amounts[name] > 0 and name not in self._column_of
        )

    def capacity(self, allocatable: Mapping[str, Quantity]) -> list[int]:
        """Return what a node has; raise `QuantityError` for what is no quantity."""
        row = [0] * len(self.names)
        for name, quantity in allocatable.items():
            units = milli(quantity) if name in self._in_thousandths else whole(quantity)
            column = self._column_of.get(name)
            if column is not None:
                row[column] = min(max(units, 0), MAX_AMOUNT - 1)
        return row

    def queue_capacity(self, capacity: Ints) -> Ints:
        """Return what queues count of what nodes have, [node, kind]; at most `MOST` of each.

        No resource counts for more than that by itself, whatever its weight, so that thousands of
        them do not wrap.
        """
        return np.minimum(
            np.minimum(capacity, MAX_AMOUNT // self._weights) @ self._weighted, MAX_AMOUNT
        )

    def queue_request(self, amounts: ResourceAmounts) -> list[int]:
        """Return what queues count of what a pod asks for, by kind; also of what no node has."""
        row = [0] * len(ResourceKind)
        for name, thousandths in amounts.items():
            kind, weight = _queue_resource(name, self.gpus)
            if kind != NONE and thousandths > 0:
                units = thousandths if name in self._in_thousandths else -(-thousandths // 1000)
                row[kind] = min(
                    row[kind] + min(units, MAX_QUEUE_REQUEST) * weight, MAX_QUEUE_REQUEST
                )
        return row


def _queue_resource(name: str, gpus: Collection[str]) -> tuple[int, int]:
    """Return which kind a resource is to queues, and how many units of it."""
    if name == CPU:
        return ResourceKind.CPU, 1
    if name == MEMORY:
        return ResourceKind.MEMORY, 1
    if name in gpus:
        return ResourceKind.GPU, 1
    slices = _MIG.fullmatch(name)
    if slices:
        return ResourceKind.GPU, int(slices[1]) * 1000
    return NONE, 0
