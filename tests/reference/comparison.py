"""What the reference and a simulation decide differently, and the fewest objects that show it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import yaml

from tests.reference import CycleResult, run_cycle

__all__ = ["Simulate", "difference", "difference_report", "smallest_difference"]

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
    want = as_text(outcome)
    got = as_text(read_document(simulate(objects), want["fairShare"]))
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


def read_document(document: Mapping[str, Any], known: Mapping[str, Any]) -> CycleResult:
    """Read the first cycle; of shares only those of queues that the reference knows."""
    cycle = document["cycles"][0]
    outcome = CycleResult()
    for one in cycle["binds"]:
        outcome.binds[one["namespace"], one["pod"]] = one["node"]
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
            amounts = {name: round(share[name]) for name in ("memory", "gpu")}
            outcome.fair_shares[queue["name"]] = {"cpu": round(share["cpu"] * 1000), **amounts}
    return outcome


def as_text(outcome: CycleResult) -> dict[str, dict[str, str]]:
    """Return each topic of an outcome with its facts; in what order PodGroups came is none."""
    facts: list[tuple[str, Mapping[Any, Any]]] = [
        ("bind", outcome.binds),
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
        name: ", ".join(f"{int(share[axis])} {axis}" for axis in ("cpu", "memory", "gpu"))
        for name, share in shares
    }
    return texts


def _is_removed_with(other: Obj, one: Obj) -> bool:
    """Say whether an object goes when another goes: itself, and the pods of a group."""
    if other is one:
        return True
    if one["kind"] != "PodGroup" or other["kind"] != "Pod":
        return False
    mine, its = one["metadata"], other["metadata"]
    group = its.get("annotations", {}).get("pod-group-name")
    return bool((its["namespace"], group) == (mine["namespace"], mine["name"]))
