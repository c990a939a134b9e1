"""What the reference and a simulation decide differently, and the fewest objects that show it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import yaml

from tests.reference.scheduler.cycle import CycleResult, run_cycle

Obj: TypeAlias = dict[str, Any]
Simulate: TypeAlias = Callable[[Sequence[Obj]], Mapping[str, Any]]


def difference(
    objects: Sequence[Obj],
    simulate: Simulate,
    then: Sequence[str] = (),
    victims: str = "kai",
    *,
    keeps_budgets: bool = False,
) -> str:
    """Return what the reference and the simulation decide differently; nothing if they agree."""
    outcome = run_cycle(objects, then=then, victims=victims, keeps_budgets=keeps_budgets)
    return difference_from(outcome, objects, simulate)


def difference_from(outcome: CycleResult, objects: Sequence[Obj], simulate: Simulate) -> str:
    """Return what a simulation decides differently from what the reference has decided."""
    want = as_text(outcome)
    got = as_text(read_document(simulate(objects), want["fairShare"], _gpu_ids(objects)))
    lines = []
    for topic in want:
        for key in sorted({**want[topic], **got[topic]}):
            expected, found = want[topic].get(key, "nothing"), got[topic].get(key, "nothing")
            if expected != found:
                lines.append(f"{topic} {key}: the reference says {expected}, the product {found}")
    return "\n".join(lines)


def smallest_difference(
    objects: Sequence[Obj], differs: Callable[[Sequence[Obj]], bool]
) -> list[Obj]:
    """Return some of the objects that still differ and of which none can be left out."""
    kept = list(objects)
    again = True
    while again:
        again = False
        for one in list(kept):
            if one["kind"] == "Namespace" or one not in kept:  # namespaces say what time it is
                continue
            fewer = [other for other in kept if not _is_removed_with(other, one)]
            if differs(fewer):
                kept, again = fewer, True
    return kept


def difference_report(
    seed: int,
    objects: Sequence[Obj],
    simulate: Simulate,
    then: Sequence[str] = (),
    victims: str = "kai",
    *,
    keeps_budgets: bool = False,
) -> str:
    """Return all there is to say about a difference."""

    def differing(some: Sequence[Obj]) -> str:
        return difference(some, simulate, then, victims, keeps_budgets=keeps_budgets)

    few = smallest_difference(objects, lambda some: bool(differing(some)))
    return "\n".join(
        [
            f"seed {seed}",
            differing(objects),
            f"of {len(objects)} objects {len(few)} are enough:",
            differing(few),
            yaml.safe_dump_all(few, sort_keys=False),
        ]
    )


def read_document(
    document: Mapping[str, Any], known: Mapping[str, Any], gpu_ids: Collection[str] = ()
) -> CycleResult:
    """Read the first cycle; of shares only the shares of queues that the reference knows.

    GPUs without one of these ids are called by all pods that share them.
    """
    cycle = document["cycles"][0]
    outcome = CycleResult()
    for one in cycle["binds"]:
        outcome.binds[one["namespace"], one["pod"]] = one["node"]
        if one.get("gpuGroups"):
            names = [
                gpu if gpu in gpu_ids else _pods_on(document, one["node"], gpu)
                for gpu in one["gpuGroups"]
            ]
            outcome.gpus[one["namespace"], one["pod"]] = sorted(names)
    for one in cycle["nominations"]:
        outcome.nominations[one["namespace"], one["pod"]] = one["node"]
    for one in cycle["evictions"]:
        outcome.evictions[one["namespace"], one["pod"]] = one["action"]
    for one in cycle["reservations"]:
        reserved_place = (one["namespace"], one["podGroup"], one["subGroup"], one["node"])
        outcome.reservations[reserved_place] = (
            outcome.reservations.get(reserved_place, 0) + one["count"]
        )
    for one in cycle["unschedulable"]:
        outcome.unschedulable[one["namespace"], one["podGroup"]] = one["reason"]
    for queue in document["queues"]:
        if queue["name"] in known:
            share = queue["fairShare"]
            cpu, gpu = (round(share[name] * 1000) for name in ("cpu", "gpu"))
            outcome.fair_shares[queue["name"]] = {
                "cpu": cpu,
                "memory": round(share["memory"]),
                "gpu": Fraction(gpu, 1000),
            }
    return outcome


def as_text(outcome: CycleResult) -> dict[str, dict[str, str]]:
    """Return each topic of an outcome with its facts; in what order PodGroups came is none."""
    facts: list[tuple[str, Mapping[Any, Any]]] = [
        ("bind", outcome.binds),
        ("gpus", {pod: " ".join(names) for pod, names in outcome.gpus.items()}),
        ("nominate", outcome.nominations),
        ("evict", outcome.evictions),
        ("reserve", outcome.reservations),
        ("verdict", outcome.unschedulable),
    ]
    texts = {
        topic: {"/".join(key): str(value) for key, value in some.items()} for topic, some in facts
    }
    shares = outcome.fair_shares.items()
    texts["fairShare"] = {
        name: f"{int(share['cpu'])} cpu, {int(share['memory'])} memory, {float(share['gpu'])} gpu"
        for name, share in shares
    }
    return texts


def _gpu_ids(objects: Sequence[Obj]) -> set[str]:
    """Return the ids of GPUs that labels name."""
    labels = [label for one in objects for label in one["metadata"].get("labels", {}).items()]
    return {value for name, value in labels if name.startswith("runai-gpu-group")}


def _pods_on(document: Mapping[str, Any], node: str, gpu: str) -> str:
    """Return the pods that share a GPU at the end."""
    binds = document["cycles"][0]["binds"]
    names = {one["pod"] for one in binds if one["node"] == node and gpu in one["gpuGroups"]}
    names |= {
        one["name"]
        for one in document["pods"]
        if one["node"] == node and one["phase"] == "Running" and gpu in one.get("gpuGroups", ())
    }
    return "+".join(sorted(names))


def _is_removed_with(other: Obj, one: Obj) -> bool:
    """Say whether an object goes when another goes: itself, and the pods of a group."""
    if other is one:
        return True
    if one["kind"] != "PodGroup" or other["kind"] != "Pod":
        return False
    mine, its = one["metadata"], other["metadata"]
    group = its.get("annotations", {}).get("pod-group-name")
    return bool((its["namespace"], group) == (mine["namespace"], mine["name"]))
