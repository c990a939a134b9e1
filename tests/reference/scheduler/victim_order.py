"""Which victim is evicted first, as the configured policy says: rule 33a."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tests.reference.scheduler.min_runtime import seconds_between
from tests.reference.scheduler.model import ClusterInfo, PodGroupInfo, PodInfo
from tests.reference.scheduler.resources import Amount


class _EvictionUnit(Protocol):
    podgroups: list[PodGroupInfo]
    pods: list[PodInfo]


B = TypeVar("B", bound=_EvictionUnit)


def by_victim_policy(cluster: ClusterInfo, units: list[B], asked: Sequence[Amount]) -> list[B]:
    """Return eviction units, given in KAI's order, in the order that the cluster has set."""
    if cluster.victim_policy == "kai":
        return units
    counts: list[Amount] = []
    for unit in units:
        is_work = cluster.victim_policy == "least-work-lost"
        count = _lost_work(cluster, unit) if is_work else -_requested_amount(unit, asked)
        same = [
            counts[i] for i, other in enumerate(units[: len(counts)]) if _same_podgroup(other, unit)
        ]
        counts.append(max([count, *same]))
    return [units[i] for _, i in sorted((count, i) for i, count in enumerate(counts))]


def _same_podgroup(one: _EvictionUnit, other: _EvictionUnit) -> bool:
    return one.podgroups[0] is other.podgroups[0]


def _lost_work(cluster: ClusterInfo, unit: _EvictionUnit) -> Amount:
    """Return how much work is lost: GPUs times the time since it was begun, or saved."""
    found: Amount = 0
    for pod in unit.pods:
        (podgroup,) = (one for one in unit.podgroups if pod in one.pods)
        for moment in [
            max(filter(None, (podgroup.started_at, podgroup.checkpointed_at)), default="")
        ]:
            if moment:
                found += pod.charged[2] * max(seconds_between(moment, cluster.now), 0)
    return found


def _requested_amount(unit: _EvictionUnit, asked: Sequence[Amount]) -> Amount:
    """Return how much of what is asked an eviction unit gives: GPUs, or else CPU."""
    kind = 2 if asked[2] else 0
    return min(sum(pod.charged[kind] for pod in unit.pods), asked[kind])
