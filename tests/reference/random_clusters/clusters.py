"""Small random clusters: few nodes, queues and PodGroups; every rule is reached sometimes.

Numbers are small and times often equal, so that ties are frequent; many clusters are nearly full,
so that PodGroups fail for different reasons. No object is invalid by itself.
"""

from random import Random
from typing import Any, Final

from tests.reference.random_clusters.podgroups import podgroup_with_pods
from tests.reference.random_clusters.pods import Sampler, bare_pod, foreign_pod
from tests.reference.random_clusters.queues import queues
from tests.reference.random_clusters.times import set_times

NOW: Final = "2026-01-01T01:00:00Z"


def random_cluster(
    random: Random, *, crowded: bool = False, timed: bool = False
) -> list[dict[str, Any]]:
    """Return the objects of a cluster, in any order; the same luck gives the same cluster.

    A *crowded* one is taken by PodGroups that run, and a few others wait; in a *timed* one it
    matters since when.
    """
    lot = Sampler(random, crowded=crowded)
    # The newest timestamp of all says what time it is.
    objects = [_object("v1", "Namespace", name, NOW) for name in ("a", "b")]
    nodes = [
        _node(lot, i) for i in range(random.choice((1, 2, 2) if crowded else (1, 2, 3, 4, 5, 6)))
    ]
    classes = _classes(random)
    found, podsets = queues(lot)
    objects += [*nodes, *classes, *found]
    for i in range(0 if crowded else random.choice((0, 0, 0, 1, 2, 5))):
        objects.append(foreign_pod(lot, f"foreign-{i}"))
    for i in range(random.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))):
        lot.is_next_running = crowded and i < 6
        if lot.happens(0.2):
            objects.append(bare_pod(lot, f"bare-{i}", podsets))
        else:
            objects += podgroup_with_pods(lot, f"unit-{i}", podsets)
    random.shuffle(objects)
    if timed:
        set_times(random, objects)
    return objects


def _object(version: str, kind: str, name: str, created: str) -> dict[str, Any]:
    meta = {"name": name, "uid": f"{kind.lower()}-{name}", "creationTimestamp": created}
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def _node(lot: Sampler, i: int) -> dict[str, Any]:
    random, name = lot.random, f"node-{i}"
    allocatable = {
        "cpu": "8" if lot.is_spacious else random.choice(("2", "4", "4", "8", "8", "1500m")),
        "memory": "16G" if lot.is_spacious else random.choice(("4G", "8G", "8G", "16G")),
        "pods": random.choice(("1", "3", "4", "110", "110", "110", "110")),
    }
    gpus = 8 if lot.is_spacious else random.choice((0, 2, 4, 4, 8))
    if gpus or lot.happens(0.2):
        allocatable["nvidia.com/gpu"] = str(gpus)
    node = _object("v1", "Node", name, lot.timestamp())
    labels = {"kubernetes.io/hostname": name}
    if not lot.happens(0.15):
        labels["zone"] = random.choice(("east", "west"))
    if lot.happens(0.5):
        labels["size"] = random.choice(("1", "2", "3", "big"))
    node["metadata"]["labels"] = labels
    node["spec"] = {"taints": _taints(random)} if lot.happens(0.2) else {}
    if lot.happens(0.07):
        node["spec"]["unschedulable"] = True
    node["status"] = {"allocatable": allocatable, "conditions": _conditions(lot)}
    lot.add_node(name, allocatable)
    return node


def _taints(random: Random) -> list[dict[str, str]]:
    taint = {"key": random.choice(("dedicated", "flaky"))}
    if random.random() < 0.5:
        taint["value"] = random.choice(("x", "y"))
    return [{**taint, "effect": random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))}]


def _conditions(lot: Sampler) -> list[dict[str, str]]:
    if lot.happens(0.5):
        return []
    found = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False"}
    if lot.happens(0.15):
        kind, status = lot.random.choice(
            (
                ("Ready", "False"),
                ("Ready", "Unknown"),
                ("MemoryPressure", "True"),
                ("DiskPressure", "True"),
                ("PIDPressure", "True"),
                ("NetworkUnavailable", "True"),
            )
        )
        found[kind] = status
    return [{"type": kind, "status": status} for kind, status in found.items()]


def _classes(random: Random) -> list[dict[str, Any]]:
    found = []
    default = random.choice(("low", "high", "build", "", "", "", "", "", ""))
    for name, value in (("low", 20), ("high", 75), ("build", 100), ("higher", 125)):
        one = _object("scheduling.k8s.io/v1", "PriorityClass", name, "2026-01-01T00:00:00Z")
        one["value"] = value
        if name == default:
            one["globalDefault"] = True
        found.append(one)
    return found
