"""Random clusters with topologies: nodes in blocks and racks, and PodGroups that must be near."""

from random import Random
from typing import Any, Final, TypeAlias

from tests.reference.random_clusters.borrowed import borrowed_cluster
from tests.reference.random_clusters.clusters import random_cluster

Obj: TypeAlias = dict[str, Any]

_LEVELS: Final = ("block", "rack")


def topology_cluster(random: Random, *, borrowed: bool = False) -> list[Obj]:
    """Return a random cluster of which some PodGroups have constraints.

    A *borrowed* one is taken by a queue that has more than its share.
    """
    objects = borrowed_cluster(random) if borrowed else random_cluster(random)
    nodes = [it for it in objects if it["kind"] == "Node"]
    racks = random.choice((1, 2, 3, 4))
    for node in nodes:
        rack = random.randrange(racks)
        labels = node["metadata"].setdefault("labels", {})
        if random.random() < 0.95:
            labels["block"] = f"block-{rack % 2}"
        if random.random() < 0.95:
            labels["rack"] = f"rack-{rack if random.random() < 0.9 else 0}"
    names = ["dc", *(["other"] if random.random() < 0.2 else [])]
    topologies = [_topology(name, _LEVELS if name == "dc" else ("zone",)) for name in names]
    for one in objects:
        if one["kind"] == "PodGroup":
            _constrain(random, one["spec"], names)
        elif one["kind"] == "Pod":  # attempts are compared elsewhere
            labels = one["metadata"].get("labels", {})
            for name in [it for it in labels if it.endswith("restart-attempt")]:
                del labels[name]
    return [*objects, *topologies]


def _topology(name: str, levels: tuple[str, ...]) -> Obj:
    return {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": it} for it in levels]},
    }


def _constrain(random: Random, spec: Obj, names: list[str]) -> None:
    parts = [spec] if random.random() < 0.5 else []
    parts += [sub for sub in spec.get("subGroups", ()) if random.random() < 0.3]
    for part in parts:
        name = random.choice((names[0], names[0], names[-1]))
        levels = _LEVELS if name == "dc" else ("zone",)
        it = {"topology": name}
        if random.random() < 0.6:
            it["requiredTopologyLevel"] = random.choice(levels)
        if random.random() < 0.6:
            it["preferredTopologyLevel"] = random.choice(levels)
        part["topologyConstraint"] = it
