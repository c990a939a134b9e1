"""Random queues: up to six on up to three levels."""

from typing import Any

from tests.reference.random_clusters.pods import Sampler

_NAMES = ("red", "green", "blue", "amber", "pink", "grey")


def queues(lot: Sampler) -> tuple[list[dict[str, Any]], list[str]]:
    """Return queues, and the names that PodGroups may give, few of which cannot be meant."""
    random = lot.random
    names = random.sample(_NAMES, random.randint(1, 6))
    if lot.happens(0.3):
        names[-1] = "default-queue"
    level: dict[str, int] = {}
    parents: dict[str, str] = {}
    for name in names:
        above = [one for one in level if level[one] < 3]
        parents[name] = random.choice(above) if above and lot.happens(0.6) else ""
        level[name] = 1 + level.get(parents[name], 0)
    inner = [name for name in names if name in parents.values()]
    podsets = [name for name in names if name not in inner] * 5
    if inner and lot.happens(0.07):
        podsets += inner
    _invalidate(lot, parents, podsets)
    return [_queue(lot, name, parents[name]) for name in names], podsets


def _invalidate(lot: Sampler, parents: dict[str, str], podsets: list[str]) -> None:
    """Let some names lead nowhere."""
    if lot.happens(0.07):
        podsets.append("missing")
    if lot.happens(0.02):
        parents[lot.random.choice(list(parents))] = "missing"
    tops = [name for name in parents if not parents[name]]
    if len(tops) > 1 and lot.happens(0.05):
        parents[tops[0]], parents[tops[1]] = tops[1], tops[0]


def _queue(lot: Sampler, name: str, parent: str) -> dict[str, Any]:
    random, bounded = lot.random, lot.happens(lot.limit_chance)
    shares = {
        axis: _share(lot, scale, bounded=bounded)
        for axis, scale in (("cpu", 1000), ("memory", 1000), ("gpu", 1))
    }
    spec: dict[str, Any] = {"resources": shares}
    if parent:
        spec["parentQueue"] = parent
    if lot.happens(0.3):
        spec["priority"] = random.choice((50, 100, 200))
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name, "uid": lot.uid(), "creationTimestamp": lot.timestamp()},
        "spec": spec,
    }


def _share(lot: Sampler, scale: int, *, bounded: bool) -> dict[str, int]:
    random = lot.random
    quota = random.choice((-1, -1, 0, 0, 1, 2, 3, 4, 6, 8))
    limit = random.choice((-1, -1, 0, 2, 4, 8, 12)) if bounded else -1
    share = {
        "quota": quota * scale if quota > 0 else quota,
        "limit": limit * scale if limit > 0 else limit,
    }
    if lot.happens(0.9):
        share["overQuotaWeight"] = random.choice((0, 1, 1, 1, 2, 3))
    return share
