"""Random clusters of queues with limits and terminating pods, some of them for a long time."""

from random import Random
from typing import Any, Final, TypeAlias

from tests.reference.random_clusters.nominated import nominated_cluster

Obj: TypeAlias = dict[str, Any]

# When they must be gone, and how long they were given: asked for at 00:58 or long before. The
# newest time of a cluster is the one at which nodes became what they are.
_NOW: Final = "2026-01-01T01:00:00Z"
_GRACE_PERIODS: Final = (
    ("2026-01-01T00:59:30Z", 30),
    ("2026-01-01T00:59:30Z", 0),
    ("2026-01-01T03:00:00Z", 10_000),  # since 00:13:20, for 3600 s at most: not stuck
    ("2026-01-01T23:00:00Z", 82_919),  # since 23:58:01: not stuck for one second more
    ("2026-01-01T23:00:00Z", 82_921),  # since 23:57:59: stuck
    ("2093-01-01T00:00:00Z", 2**31 - 1),
)


def terminating_cluster(random: Random) -> list[Obj]:
    """Return nodes, two levels of queues, PodGroups that run or go, and PodGroups that wait."""
    objects = nominated_cluster(random, as_before=random.random() < 0.5)
    for one in objects:
        if one["kind"] == "Queue":
            limit = random.choice((-1, 4, 8, 8, 12, 16))
            one["spec"]["resources"]["gpu"]["limit"] = limit
        elif one["kind"] == "Node":
            one["status"]["conditions"] = [
                {"type": "Ready", "status": "True", "lastTransitionTime": _NOW}
            ]
        elif one["kind"] == "Namespace":
            one["metadata"]["creationTimestamp"] = _NOW
    for group in [one for one in objects if one["kind"] == "PodGroup"]:
        if random.random() < 0.5:
            _terminate(random, objects, group["metadata"]["name"])
    return objects


def _terminate(random: Random, objects: list[Obj], group: str) -> None:
    due, grace = random.choice(_GRACE_PERIODS)
    for one in objects:
        named = one["metadata"].get("annotations", {}).get("pod-group-name")
        if named == group and "nodeName" in one.get("spec", {}) and random.random() < 0.8:
            one["metadata"]["deletionTimestamp"] = due
            one["metadata"]["deletionGracePeriodSeconds"] = grace
