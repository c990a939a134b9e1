"""Which victim is evicted first, as the configured policy says: rule 33a."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tests.reference.scheduler.min_runtime import seconds_between
from tests.reference.scheduler.model import ClusterInfo, PodGroupInfo, PodInfo
from tests.reference.scheduler.resources import queue_amounts

__all__ = ["by_victim_policy"]


class _EvictionUnit(Protocol):
    podgroups: list[PodGroupInfo]
    pods: list[PodInfo]


B = TypeVar("B", bound=_EvictionUnit)


def by_victim_policy(cluster: ClusterInfo, line: list[B], asked: Sequence[int]) -> list[B]:
    """Return the blocks of KAI's line in the order that the cluster has."""
    if cluster.victim_policy == "kai":
        return line
    counts: list[int] = []
    for block in line:
        is_work = cluster.victim_policy == "least-work-lost"
        count = _lost_work(cluster, block) if is_work else -_requested_amount(block, asked)
        same = [
            counts[i] for i, other in enumerate(line[: len(counts)]) if _same_podgroup(other, block)
        ]
        counts.append(max([count, *same]))
    return [line[i] for _, i in sorted((count, i) for i, count in enumerate(counts))]


def _same_podgroup(one: _EvictionUnit, other: _EvictionUnit) -> bool:
    return one.podgroups[0] is other.podgroups[0]


def _lost_work(cluster: ClusterInfo, block: _EvictionUnit) -> int:
    """Return how much work is lost: GPUs times the time since it was begun, or saved."""
    found = 0
    for pod in block.pods:
        (podgroup,) = (one for one in block.podgroups if pod in one.pods)
        for moment in [
            max(filter(None, (podgroup.started_at, podgroup.checkpointed_at)), default="")
        ]:
            if moment:
                found += queue_amounts(pod.requests)[2] * max(
                    seconds_between(moment, cluster.now), 0
                )
    return found


def _requested_amount(block: _EvictionUnit, asked: Sequence[int]) -> int:
    """Return how much of what is asked for a block gives: GPUs, or else CPU."""
    kind = 2 if asked[2] else 0
    return min(sum(queue_amounts(pod.requests)[kind] for pod in block.pods), asked[kind])
