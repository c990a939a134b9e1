"""Units as trees: rules 5 to 9."""

from fractions import Fraction

from tests.support.reference.things import Leaf, Part, Pod, Unit

__all__ = ["can_be", "chunk", "members", "part_rank", "satisfied", "standing", "turn"]

_MEMBERS = ("there", "succeeded", "bound", "nominated", "reserved")


def members(leaf: Leaf, without: tuple[str, ...] = ()) -> int:
    """Return how many members a leaf has."""
    states = [pod.state for pod in [*leaf.pods, *leaf.later]]
    return sum(state in _MEMBERS and state not in without for state in states)


def satisfied(part: Part, without: tuple[str, ...] = ()) -> bool:
    """Say whether a part of a unit has what it needs; pods of some states may be left out."""
    return _count(part, without) >= part.minimum


def can_be(part: Part) -> bool:
    """Say whether a part could be satisfied if there were room."""
    if isinstance(part, Leaf):
        return members(part) + len(_waiting(part)) + len(_later(part)) >= part.minimum
    return sum(can_be(child) for child in part.children) >= part.minimum


def chunk(part: Part) -> list[Pod]:
    """Return what one attempt takes of a part."""
    if isinstance(part, Leaf):
        lacks = part.minimum - members(part)
        if lacks > 0:
            return [*_waiting(part), *_later(part)][:lacks]
        return _waiting(part)[:1]
    children = sorted(part.children, key=part_rank)
    if satisfied(part):
        return next((some for some in map(_whole, children) if some), [])
    lacking = [child for child in children if not satisfied(child) and can_be(child)]
    lacks = part.minimum - _count(part)
    return [pod for child in lacking[:lacks] for pod in chunk(child)]


def standing(unit: Unit) -> int:
    """Return 0 below the minimum, 1 exactly at it, 2 above.

    Exactly at it is a unit that could spare nobody.
    """
    if not satisfied(unit.root):
        return 0
    for pod in unit.pods:
        if pod.state in _MEMBERS:
            kept, pod.state = pod.state, "other"
            spared = satisfied(unit.root)
            pod.state = kept
            if spared:
                return 2
    return 1


def _whole(part: Part) -> list[Pod]:
    """Return the chunk of a part, if it leads to anything."""
    return chunk(part) if satisfied(part) or can_be(part) else []


def _count(part: Part, without: tuple[str, ...] = ()) -> int:
    if isinstance(part, Leaf):
        return members(part, without)
    return sum(satisfied(child, without) for child in part.children)


def part_rank(part: Part) -> tuple[object, ...]:
    """Return what orders the children of a group."""
    if not satisfied(part):
        return (0, 0, 0, part.name)
    if part.minimum > 0:
        return (1, 0, Fraction(_count(part), part.minimum), part.name)
    return (1, 1, _count(part), part.name)


def _later(leaf: Leaf) -> list[Pod]:
    return [pod for pod in leaf.later if pod.state == "later"]


def _waiting(leaf: Leaf) -> list[Pod]:
    return sorted((pod for pod in leaf.pods if pod.state == "waiting"), key=turn)


def turn(pod: Pod) -> tuple[object, ...]:
    """Return what orders the pods of a leaf."""
    labels = pod.labels
    leads = labels.get("training.kubeflow.org/job-role") in ("master", "launcher")
    leads = leads or labels.get("ray.io/node-type") == "head"
    text = labels.get("kai.scheduler/task-priority", "")
    number = int(text) if text.lstrip("-").isdecimal() else None
    return (not leads, number is None, -(number or 0), pod.created, pod.uid)
