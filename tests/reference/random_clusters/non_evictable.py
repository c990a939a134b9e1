"""Random clusters in which PodGroups over quota cannot be evicted, for several reasons."""

import copy
from random import Random
from typing import Any, Final, TypeAlias

from tests.reference.random_clusters.borrowed import borrowed_cluster

Obj: TypeAlias = dict[str, Any]

_KUEUE: Final = {"kueue.x-k8s.io/queue-name": "x"}


def non_evictable_cluster(random: Random) -> list[Obj]:
    """Return one with budgets, pods that succeeded, and TrainJobs that cannot be evicted."""
    objects = borrowed_cluster(random, owned=0.7)
    groups = [one for one in objects if one["kind"] == "PodGroup"]
    for group in groups:
        if random.random() < 0.4:
            _finish(random, objects, group)
        if random.random() < 0.1:
            group["spec"]["preemptibility"] = "non-preemptible"
    for one in objects:
        if one["kind"] == "TrainJob" and random.random() < 0.15:
            one["metadata"]["labels"] = dict(_KUEUE)
    claimed = {one["spec"]["queue"] for one in groups if one["metadata"]["name"][0] == "w"}
    for one in objects:
        if one["kind"] == "Queue" and one["metadata"]["name"] in claimed and random.random() < 0.8:
            one["spec"]["resources"]["gpu"]["quota"] = random.choice((2, 4, 8))
    owned = [group for group in groups if group["metadata"].get("ownerReferences")]
    if len(owned) > 1 and random.random() < 0.3:
        one, other = random.sample(owned, 2)  # of one JobSet, maybe of different queues
        other["metadata"]["ownerReferences"] = one["metadata"]["ownerReferences"]
    return [*objects, *_budgets(random, objects)]


def _finish(random: Random, objects: list[Obj], group: Obj) -> None:
    """Let a pod of a group have succeeded, beside the pods that are there."""
    name = group["metadata"]["name"]
    pods = [
        one
        for one in objects
        if one["kind"] == "Pod"
        and one["metadata"]["annotations"]["pod-group-name"] == name
        and "nodeName" in one["spec"]
    ]
    if not pods:
        return
    done = copy.deepcopy(random.choice(pods))
    done["metadata"]["name"] = done["metadata"]["uid"] = f"{name}-done"
    done["status"] = {"phase": "Succeeded"}
    group["spec"]["minMember"] += random.choice((0, 1))
    objects.append(done)


def _budgets(random: Random, objects: list[Obj]) -> list[Obj]:
    """Return budgets, and label the pods that they cover."""
    found = []
    for name in ("x", "y")[: random.choice((0, 1, 1, 2))]:
        for one in objects:
            if one["kind"] == "Pod" and random.random() < 0.6:
                one["metadata"].setdefault("labels", {})[f"budget-{name}"] = "yes"
        meta: Obj = {"name": name, "namespace": "a", "uid": f"budget-{name}", "generation": 2}
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        status = {"disruptionsAllowed": random.choice((0, 0, 1, 1, 2, 3))}
        status["desiredHealthy"] = random.choice((0, 0, 0, 1, 2))
        status["observedGeneration"] = random.choice((1, 2, 2, 2, 2, 2))
        status["currentHealthy"] = status["expectedPods"] = 4
        spec = {"selector": {"matchLabels": {f"budget-{name}": "yes"}}}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
        found.append({**budget, "spec": spec, "status": status})
    return found
