"""Who loses something first, as a site has chosen it: rule 33a."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tests.support.reference.amounts import axes
from tests.support.reference.things import Cluster, Pod, Unit
from tests.support.reference.times import seconds_between

__all__ = ["in_order"]


class _Block(Protocol):
    units: list[Unit]
    pods: list[Pod]


B = TypeVar("B", bound=_Block)


def in_order(cluster: Cluster, line: list[B], asked: Sequence[int]) -> list[B]:
    """Return the blocks of KAI's line in the order that the cluster has."""
    if cluster.victims == "kai":
        return line
    counts: list[int] = []
    for block in line:
        is_work = cluster.victims == "least-work-lost"
        count = _work(cluster, block) if is_work else -_useful(block, asked)
        same = [counts[i] for i, other in enumerate(line[: len(counts)]) if _is_of(other, block)]
        counts.append(max([count, *same]))
    return [line[i] for _, i in sorted((count, i) for i, count in enumerate(counts))]


def _is_of(one: _Block, other: _Block) -> bool:
    return one.units[0] is other.units[0]


def _work(cluster: Cluster, block: _Block) -> int:
    """Return how much work is lost: GPUs times the time since it was begun, or saved."""
    found = 0
    for pod in block.pods:
        (unit,) = (one for one in block.units if pod in one.pods)
        for moment in [max(filter(None, (unit.began, unit.saved)), default="")]:
            if moment:
                found += axes(pod.needs)[2] * max(seconds_between(moment, cluster.now), 0)
    return found


def _useful(block: _Block, asked: Sequence[int]) -> int:
    """Return how much of what is asked for a block gives: GPUs, or else CPU."""
    kind = 2 if asked[2] else 0
    return min(sum(axes(pod.needs)[kind] for pod in block.pods), asked[kind])
