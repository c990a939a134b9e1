"""Random clusters of several nodes with waiting pods that are nominated."""

from random import Random
from typing import Any, Final, TypeAlias

from tests.reference.random_clusters.objects import make_object

Obj: TypeAlias = dict[str, Any]

_AT: Final = ("00:00:00", "00:10:00", "00:20:00", "00:30:00", "00:40:00")
_CLASSES: Final = {"low": 30, "high": 70, "highest": 90}
_GPUS: Final = 8  # of a node


def nominated_cluster(random: Random, *, as_before: bool = False) -> list[Obj]:
    """Return nodes, two levels of queues, PodGroups that run, and PodGroups that wait.

    Most of these are nominated to nodes, unless all is *as before* any nomination.
    """
    objects = [make_object("Namespace", "a", "00:50:00")]
    for name, value in _CLASSES.items():
        objects.append({**make_object("PriorityClass", name, "00:00:00"), "value": value})
    nodes = [f"node-{i}" for i in range(random.choice((2, 3, 3, 4)))]
    objects += [_node(name) for name in nodes]
    podsets, queues = _queues(random)
    objects += queues
    free = dict.fromkeys(nodes, _GPUS)
    for i in range(random.choice((4, 6, 8, 10) if as_before else (2, 3, 4, 5))):
        nodes_and_gpus = _free_gpus(
            random, free, random.choice((1, 1, 1, 2, 3)), random.choice((1, 2, 3, 4, 8))
        )
        if nodes_and_gpus:
            objects += _podgroup(random, f"runs-{i}", random.choice(podsets), nodes_and_gpus)
    for i in range(random.choice((2, 3, 4, 5, 6))):
        count, size = random.choice((1, 1, 2, 3)), random.choice((1, 2, 2, 4, 4, 8))
        nodes_and_gpus = [("", size)] * count
        if not as_before and random.random() < 0.7:
            nodes_and_gpus = (
                _free_gpus(random, free, count, size, random.choice((0, 0, 0, 4))) or nodes_and_gpus
            )
        objects += _podgroup(
            random, f"waits-{i}", random.choice(podsets), nodes_and_gpus, waits=True
        )
    random.shuffle(objects)
    return objects


def _free_gpus(
    random: Random, free: dict[str, int], count: int, size: int, beyond: int = 0
) -> list[tuple[str, int]]:
    """Return a node for each of so many pods, or of as many of them as have room; none if none."""
    nodes_and_gpus: list[tuple[str, int]] = []
    for _ in range(count):
        found = [node for node in free if free[node] + beyond >= size]
        if not found:
            return nodes_and_gpus
        node = random.choice(found)
        free[node] -= size
        nodes_and_gpus.append((node, size))
    return nodes_and_gpus


def _node(name: str) -> Obj:
    node = make_object("Node", name, "00:00:00")
    node["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    node["status"] = {"allocatable": {"cpu": "64", "pods": "110", "nvidia.com/gpu": str(_GPUS)}}
    return node


def _queues(random: Random) -> tuple[list[str], list[Obj]]:
    """Return the names of those that take PodGroups, and all: each below one above it."""
    podsets, found = [], []
    for top in ("red", "green", "blue")[: random.choice((1, 2, 2, 3))]:
        limit = random.choice((-1, -1, -1, 16))
        found.append(_queue(random, top, random.choice((0, 4, 8, 12, 16)), limit))
        for i in range(random.choice((1, 2, 2, 3))):
            podset = f"{top}-{i}"
            quota, limit = random.choice((0, 0, 2, 4, 4, 8)), random.choice((-1, -1, -1, 8))
            found.append(_queue(random, podset, quota, limit, top))
            podsets.append(podset)
    return podsets, found


def _queue(random: Random, name: str, quota: int, limit: int, parent: str = "") -> Obj:
    queue = make_object("Queue", name, random.choice(_AT[:3]))
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": random.choice((1, 1, 1, 2))}
    queue["spec"] = {"resources": {"cpu": free, "memory": free, "gpu": gpu}}
    if parent:
        queue["spec"]["parentQueue"] = parent
    return queue


def _podgroup(
    random: Random,
    name: str,
    queue: str,
    nodes_and_gpus: list[tuple[str, int]],
    *,
    waits: bool = False,
) -> list[Obj]:
    """Return a group of pods; they are on their nodes, or wait and are nominated to them."""
    group = make_object("PodGroup", name, random.choice(_AT))
    least = random.choice((len(nodes_and_gpus), len(nodes_and_gpus), 1))
    group["spec"] = {"queue": queue, "minMember": least}
    if random.random() < 0.6:
        group["spec"]["priorityClassName"] = random.choice(list(_CLASSES))
    found = [group]
    for i, (node, size) in enumerate(nodes_and_gpus):
        pod = make_object("Pod", f"{name}-{i}", "00:40:00")
        pod["metadata"]["annotations"] = {"pod-group-name": name}
        container = {"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(size)}}}
        pod["spec"] = {"schedulerName": "kai-scheduler", "containers": [container]}
        pod["status"] = {"phase": "Pending"}
        if node and waits:
            pod["status"]["nominatedNodeName"] = node
        elif node:
            pod["spec"]["nodeName"], pod["status"] = node, {"phase": "Running"}
        found.append(pod)
    return found
