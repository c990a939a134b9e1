"""A difference is found, reported in full and reduced to the objects that show it."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tests.reference.comparison import difference, difference_report
from tests.reference.objects import NOW, group, node, pod, queue
from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.scheduler.cycle import run_cycle

SPACE = {"kind": "Namespace", "metadata": {"name": "ns", "creationTimestamp": NOW}}


def document(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what a product would say that agrees with the reference."""
    outcome = run_cycle(objects)
    binds = [{"namespace": n, "pod": p, "node": at} for (n, p), at in outcome.binds.items()]
    nominations = [
        {"namespace": n, "pod": p, "node": at} for (n, p), at in outcome.nominations.items()
    ]
    reservations = [
        {"namespace": n, "podGroup": g, "subGroup": s, "node": at, "count": count}
        for (n, g, s, at), count in outcome.reservations.items()
    ]
    reasons = [
        {"namespace": n, "podGroup": g, "reason": reason, "message": "x"}
        for (n, g), reason in outcome.unschedulable.items()
    ]
    queues = [
        {"name": name, "fairShare": {**share, "cpu": float(share["cpu"]) / 1000}}
        for name, share in outcome.fair_shares.items()
    ]
    cycle = {
        "evictions": [],
        "binds": binds,
        "nominations": nominations,
        "reservations": reservations,
        "unschedulable": reasons,
    }
    return {"cycles": [cycle], "queues": queues}


def forgetful(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Return the same, but for the binding of one pod."""
    output = document(objects)
    cycle = output["cycles"][0]
    cycle["binds"] = [one for one in cycle["binds"] if one["pod"] != "p"]
    return output


def test_equal_decisions_have_no_difference() -> None:
    """A document with the outcome of the reference is equal to it."""
    for seed in range(50):
        assert difference(random_cluster(Random(seed)), document) == ""


def test_a_difference_is_boiled_down() -> None:
    """What does not matter is left out; what is told can be read back by its seed."""
    objects = [
        *(SPACE, queue(), queue("r"), node("a"), node("b")),
        *(group("g"), pod("p", "g"), group("h", 2), pod("x", "h"), pod("y", "h")),
    ]
    text = difference_report(7, objects, forgetful)
    assert text.splitlines()[:4] == [
        "seed 7",
        "bind ns/p: the reference says a, the product nothing",
        "of 10 objects 5 are enough:",
        "bind ns/p: the reference says b, the product nothing",
    ]
