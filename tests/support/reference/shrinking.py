"""What a unit loses step by step: rule 35."""

from collections.abc import Iterator

from tests.support.reference.things import Leaf, Part, Pod, Unit
from tests.support.reference.trees import members, part_rank, satisfied, turn

__all__ = ["steps"]


def steps(unit: Unit) -> list[list[Pod]]:
    """Return what a unit would lose step by step, before it loses all."""
    found: list[list[Pod]] = []
    while some := _shed(unit.root):
        found.append(some)
        for pod in some:
            pod.state = "shed"
    for pod in [pod for some in found for pod in some]:
        pod.state = "there"
    return found


def _shed(part: Part) -> list[Pod]:
    """Return what a part loses next while it keeps what it needs."""
    if isinstance(part, Leaf):
        own = sorted((pod for pod in part.pods if pod.state == "there"), key=turn)
        return own[-1:] if members(part) > part.minimum else []
    children = sorted(part.children, key=part_rank, reverse=True)
    kept = [child for child in children if satisfied(child)]
    for child in kept:
        if some := _shed(child):
            return some
    for child in children if len(kept) > part.minimum else ():
        if any(pod.state == "there" for pod in _all(child)):
            return [pod for pod in _all(child) if pod.state in ("there", "shed")]
    return []


def _all(part: Part) -> Iterator[Pod]:
    if isinstance(part, Leaf):
        yield from part.pods
    else:
        for child in part.children:
            yield from _all(child)
