"""Random clusters with PodGroups that avoid nodes which refused their pods."""

import json
from random import Random
from typing import Any, Final, TypeAlias

from tests.reference.random_clusters.borrowed import borrowed_cluster
from tests.reference.random_clusters.clusters import random_cluster

Obj: TypeAlias = dict[str, Any]

_OVER: Final = "2025-12-31T00:00:00Z"
_LATER: Final = "2026-01-02T00:00:00Z"


def avoiding_cluster(random: Random, *, borrowed: bool = False) -> list[Obj]:
    """Return a random cluster; a *borrowed* one is taken by a queue with more than its share."""
    objects = borrowed_cluster(random) if borrowed else random_cluster(random)
    nodes = [it["metadata"] for it in objects if it["kind"] == "Node"]
    for number, meta in enumerate(nodes):
        meta.setdefault("uid", f"node-uid-{number}")
    for one in objects:
        if one["kind"] == "PodGroup" and nodes and random.random() < 0.7:
            records = {
                meta["name"]: {
                    "uid": meta["uid"] if random.random() < 0.9 else "before",
                    "until": _LATER if random.random() < 0.8 else _OVER,
                }
                for meta in nodes
                if random.random() < 0.5
            }
            annotations = one["metadata"].setdefault("annotations", {})
            annotations["trainer-kai.dev/avoided-nodes"] = json.dumps(records)
    return objects
