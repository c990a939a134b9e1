"""Why a unit waits, in one sentence with numbers, and what would change it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar

from scheduler.core.decision import (
    Futile,
    HeldUp,
    MemberNumbers,
    Missing,
    NodeNumbers,
    Obstacle,
    QuotaNumbers,
    Rejection,
)
from scheduler.core.kept import why_kept
from scheduler.core.model import KINDS, NONE, Axes, Kind, Shape, Snapshot, Verdict

__all__ = ["COUNTED_MOST", "MOST", "explain", "for_kai"]

N = TypeVar("N", int, str)

MOST: Final = 2**50  # a pod that asks for more of something is written down with this
COUNTED_MOST: Final = 2**45  # and with this at its queue

_FEW: Final = 2  # changes that are told
_MOST_TOLD: Final = 3  # of bounds, taints, labels and resources
_MIB: Final = 2**20
_GIB: Final = 2**30
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
_UNIT_OF: Final = {Kind.CPU: "CPU", Kind.MEMORY: "memory", Kind.GPU: "GPU"}
_OBSTACLES: Final = {
    Obstacle.CORDONED: ("is cordoned", "are cordoned"),
    Obstacle.NOT_READY: ("is not ready", "are not ready"),
    Obstacle.PRESSURE: ("is under pressure", "are under pressure"),
    Obstacle.NO_NETWORK: ("has no network", "have no network"),
    Obstacle.TAINT: ("has a taint that it does not tolerate", "have taints it does not tolerate"),
    Obstacle.SELECTOR: ("does not match what it selects", "do not match what it selects"),
    Obstacle.TOO_SMALL: ("is too small even when empty", "are too small even when empty"),
    Obstacle.CLAIM: (
        "cannot give it a claim that is in use",
        "cannot give it a claim that is in use",
    ),
    Obstacle.PORT: ("has its host port in use", "have its host port in use"),
    Obstacle.AFFINITY: ("is not near the pods it wants", "are not near the pods it wants"),
    Obstacle.ANTI_AFFINITY: ("is near pods it must avoid", "are near pods it must avoid"),
    Obstacle.SPREAD: ("would make its spread uneven", "would make its spread uneven"),
}
_IN_VAIN: Final = {
    Futile.QUOTA: "a quota of its queues has no room for it",
    Futile.SHARE: "its queue would have more than its fair share",
}
_REMEDIES: Final = {
    Obstacle.CORDONED: "a node is uncordoned",
    Obstacle.NOT_READY: "a node becomes ready",
    Obstacle.PRESSURE: "the pressure on a node ends",
    Obstacle.NO_NETWORK: "a node gets its network",
    Obstacle.TAINT: "it tolerates the taints of a node",
    Obstacle.SELECTOR: "it selects other nodes",
    Obstacle.TOO_SMALL: "it asks for less",
    Obstacle.CLAIM: "the claim is free",
    Obstacle.PORT: "the host port is free",
    Obstacle.AFFINITY: "the pods it wants are there",
    Obstacle.ANTI_AFFINITY: "the pods it must avoid are gone",
    Obstacle.SPREAD: "other pods make its spread even",
}


def explain(snapshot: Snapshot, rejection: Rejection) -> str:
    """Return the sentence; more of them tell what keeps others from giving anything back."""
    told = [_numbers(snapshot, rejection), *why_kept(snapshot, rejection)]
    if rejection.kept.held_up is not None:
        told.append(_before(snapshot, rejection.kept.held_up))
    return ". ".join(told)


def _before(snapshot: Snapshot, held_up: HeldUp) -> str:
    name, wanted = snapshot.units[held_up.by].name, zip(KINDS, held_up.asked, strict=True)
    needs = _listed(_at_least(kind, number) for kind, number in wanted if number > 0)
    told = f"What others may have to give back is first for {name}, which asks for {needs}"
    if held_up.in_vain is None:
        return told
    turn = "It has its turn once that one starts, asks for less or is gone"
    return f"{told} and cannot have it: {_IN_VAIN[held_up.in_vain]}. {turn}"


def _numbers(snapshot: Snapshot, rejection: Rejection) -> str:
    numbers = rejection.numbers
    if isinstance(numbers, QuotaNumbers):
        if numbers.unevictable:
            return _of_loan(snapshot, numbers)
        return _of_quota(snapshot, rejection.verdict, numbers)
    if isinstance(numbers, NodeNumbers):
        return _of_nodes(snapshot, numbers)
    if isinstance(numbers, MemberNumbers):
        return _of_members(numbers)
    return numbers.message


def for_kai(snapshot: Snapshot, rejection: Rejection) -> tuple[str, str]:
    """Return reason and message as KAI writes them into conditions, for tools that read those."""
    numbers = rejection.numbers
    if rejection.verdict == Verdict.PREEMPTION_DELAY:
        return "PreemptionDelayNotElapsed", explain(snapshot, rejection)
    if isinstance(numbers, QuotaNumbers):
        is_limit = rejection.verdict == Verdict.EXCEEDS_LIMIT
        return ("OverLimit" if is_limit else "NonPreemptibleOverQuota"), explain(
            snapshot, rejection
        )
    if rejection.verdict == Verdict.QUEUE_MISSING:
        return "QueueDoesNotExist", explain(snapshot, rejection)
    if isinstance(numbers, NodeNumbers):
        histogram = ", ".join(sorted(_for_kai(snapshot.axes, numbers)))
        return "PodSchedulingErrors", f"no nodes with enough resources were found: {histogram}."
    return rejection.verdict.title, explain(snapshot, rejection)


def _of_quota(snapshot: Snapshot, verdict: Verdict, numbers: QuotaNumbers) -> str:
    is_limit = verdict != Verdict.NON_PREEMPTIBLE_OVER_QUOTA
    names, bounds = snapshot.queues.names, (numbers, *numbers.others)
    has = _first(_bound(names, it, is_limit=is_limit) for it in bounds)
    begin = has if is_limit else f"what cannot be preempted may have {has}"
    asked = {it.kind: it.asked for it in bounds}
    needs = _listed(_at_least(kind, number) for kind, number in asked.items())
    are = "are" if len(asked) > 1 else _is_or_are(numbers.kind, numbers.asked)
    never = [it for it in bounds if it.asked > it.bound]
    when = "It can never start unless" if never else "It can start when"
    change = _first((_rise(names, it, is_limit=is_limit) for it in never or bounds), ", and ")
    ways = [*["it asks for less"] * bool(never), *["it may be preempted"] * (not is_limit)]
    return f"{begin}; {needs} more {are} needed. {when} {_or([change, *ways])}"


def _of_loan(snapshot: Snapshot, numbers: QuotaNumbers) -> str:
    """Say that a queue borrows no more, because it could not give back what it has."""
    bounds, units = (numbers, *numbers.others), numbers.unevictable
    has = _listed(_of_kind(it.kind, it.allocated) for it in bounds)
    quota = _listed(_of_kind(it.kind, it.bound) for it in bounds)
    needs = _listed(_at_least(it.kind, it.asked) for it in bounds)
    over = _listed(_of_kind(it.kind, it.allocated - it.bound) for it in bounds)
    queue, many = snapshot.queues.names[numbers.queue], "s" if len(units) > 1 else ""
    whose = _first(snapshot.units[row].name for row in units)
    begin = f"queue {queue} may borrow nothing more: it has {has} that it cannot give back"
    because = f"because {len(units)} PodGroup{many} cannot be evicted ({whose})"
    change = f"{over} of this can be given back or the quota of queue {queue} rises to {has}"
    are = "are" if len(bounds) > 1 else _is_or_are(numbers.kind, numbers.asked)
    more = f"{needs} more {are} needed. It can start when {change}"
    return f"{begin}, and a quota of {quota}, {because}; {more}"


def _bound(names: tuple[str, ...], it: QuotaNumbers, *, is_limit: bool) -> str:
    queue, bound, has = names[it.queue], _of_kind(it.kind, it.bound), it.allocated
    begin = f"queue {queue} may have at most" if is_limit else f"the quota of queue {queue},"
    told = f"{begin} {bound}{'' if is_limit else ','} and has {_of_kind(it.kind, has)}"
    if it.ending:
        told += f" and {_of_kind(it.kind, it.ending)} in pods that are ending"
    return told


def _rise(names: tuple[str, ...], it: QuotaNumbers, *, is_limit: bool) -> str:
    """Return what would make room below a bound: that it rises, or that something comes back."""
    word, queue = "limit" if is_limit else "quota", names[it.queue]
    whole = it.allocated + it.ending + it.asked
    if it.ending:
        left = _at_least(it.kind, whole - it.bound)
        rises = f"its {word} rises to {_at_least(it.kind, whole)}"
        return f"pods of queue {queue} that are ending have left {left} or {rises}"
    if it.asked > it.bound:
        more, has = _at_least(it.kind, whole), _of_kind(it.kind, it.allocated)
        meanwhile = f" (to {more} as long as it has {has})" if it.allocated else ""
        return f"the {word} of queue {queue} rises to {_at_least(it.kind, it.asked)}{meanwhile}"
    over = whole - it.bound
    back = f"{_at_least(it.kind, over)} of {'' if is_limit else 'that in '}queue {queue}"
    are = _is_or_are(it.kind, over)
    return f"{back} {are} given back or its {word} rises to {_at_least(it.kind, whole)}"


def _of_members(numbers: MemberNumbers) -> str:
    missing = numbers.missing
    if not missing:
        return "pods are missing: no sub-group that is missing can be whole"
    until = []
    if any(it.existing < it.needed for it in missing):
        until.append("the others exist")
    if any(it.gated for it in missing):
        until.append("the gates are gone")
    told = _listed(_of_leaf(it) for it in missing)
    return f"pods are missing: {told}. It waits until {' and '.join(until)}"


def _of_leaf(it: Missing) -> str:
    gated = f"{it.gated} of them {'is' if it.gated == 1 else 'are'} gated (schedulingGates)"
    exist = f"{it.existing} of {it.needed} exist in {it.leaf}"
    return f"{exist}, {gated}" if it.gated else exist


def _of_nodes(snapshot: Snapshot, numbers: NodeNumbers) -> str:
    axes = snapshot.axes
    shape = snapshot.shapes[numbers.shape]
    asked = [_asked(axes, r, n) for r, n in enumerate(shape.request) if n and r != axes.pods]
    lacking = [_first(f"{n} {name}" for name, n in shape.lacking)] if shape.lacking else []
    asks = _listed([*asked, *lacking])
    begin = f"{numbers.placed} of {numbers.needed} pods have room, the next asks for"
    if numbers.needed == 1:
        begin = "it asks for"
    nodes = len(snapshot.nodes.names)
    found = _listed(_obstacles(snapshot, numbers)) or "there is none"
    remedy = _remedy(axes, numbers, shape)
    of = f"{_after(numbers.placed)} {_nodes(nodes)}"
    return f"{begin} {asks or 'nothing'}. {of} {found}. {remedy}"


def _after(placed: int) -> str:
    """Say that nodes are counted with the pods before it in their places."""
    if not placed:
        return "Of"
    return f"After {placed} of its pods {'is' if placed == 1 else 'are'} placed, of"


def _obstacles(snapshot: Snapshot, numbers: NodeNumbers) -> Iterator[str]:
    for obstacle, count in sorted(numbers.counts.items(), reverse=True):
        if obstacle == Obstacle.ROOM:
            yield _lack_of_room(snapshot.axes, numbers, count)
            continue
        own = numbers.own.get(obstacle, 0)
        because = f"{own} because of its own pods" if own else ""
        named = because or _named(snapshot, numbers, obstacle, count)
        yield f"{count} {_OBSTACLES[obstacle][count > 1]}{named and f' ({named})'}"


def _named(snapshot: Snapshot, numbers: NodeNumbers, obstacle: Obstacle, count: int) -> str:
    """Name what is in the way there, the most frequent first."""
    if obstacle == Obstacle.TAINT:
        return _first(snapshot.nodes.taint_names[it] for it in _by_count(numbers.taints))
    if obstacle == Obstacle.SELECTOR:
        keys = _first(_by_count(numbers.keys))
        return keys and f"by {keys}"
    if obstacle == Obstacle.TOO_SMALL:
        lacking = _first(name for name, _ in snapshot.shapes[numbers.shape].lacking)
        told = [_sizes(snapshot.axes, numbers, count), f"no node has {lacking}" if lacking else ""]
        return "; ".join(filter(None, told))
    return ""


def _sizes(axes: Axes, numbers: NodeNumbers, count: int) -> str:
    """Return what nodes have of what they have too little of."""
    small, order = numbers.small, _by_count(numbers.small)
    most = {r: _amount(axes, r, numbers.biggest[r]) for r in order}
    if any(small[r] < count for r in order):
        return _first(f"{small[r]} with at most {most[r]}" for r in order)
    begin = "it has" if count == 1 else "the largest has"
    return f"{begin} {_first(most.values())}" if most else ""


def _by_count(counts: Mapping[N, int]) -> list[N]:
    return sorted(counts, key=lambda it: (-counts[it], it))


def _lack_of_room(axes: Axes, numbers: NodeNumbers, count: int) -> str:
    free = _listed(_amount(axes, r, numbers.largest[r]) for r in _by_count(numbers.lacking))
    if count == 1:
        return f"1 lacks room ({free} free)"
    return f"{count} lack room (at most {free} free on one)"


def _remedy(axes: Axes, numbers: NodeNumbers, shape: Shape) -> str:
    if Obstacle.ROOM not in numbers.counts:
        return _some_change(axes, numbers, shape)
    lacking = sorted(numbers.lacking)
    asked = {r: shape.request[r] * numbers.left for r in lacking}
    if numbers.seats < numbers.left:
        change = _some_change(axes, numbers, shape, asked)
        return f"Even with nobody else there, {_too_few(numbers)}. {change}"
    room = _room(axes, numbers, asked)
    if numbers.verdict == Verdict.FRAGMENTED:
        return f"There is enough in all, but in pieces: it can start when {room}"
    short = [r for r in lacking if numbers.largest[r] < numbers.room[r] < asked[r]]
    if short:
        free = _listed(_amount(axes, r, numbers.room[r]) for r in short)
        together = f"Together they {'then ' if numbers.placed else ''}have"
        return f"{together} {free} free: it can start when {room}"
    return f"It can start when {room}"


def _too_few(numbers: NodeNumbers) -> str:
    if numbers.placed + numbers.left == numbers.needed:
        return f"there is room for only {numbers.placed + numbers.seats} of {numbers.needed} pods"
    if not numbers.seats:
        return "there is no room for such a pod beside its own"
    return f"there is room for only {numbers.seats} of {numbers.left} such pods"


def _room(axes: Axes, numbers: NodeNumbers, asked: dict[int, int]) -> str:
    """Return which room would do for the pods that are left."""
    needs = _listed(_amount(axes, r, n) for r, n in asked.items())
    is_one = numbers.counts[Obstacle.ROOM] == 1
    then = "then " if numbers.placed else ""
    if numbers.left == 1:
        return f"{'that node' if is_one else 'one of them'} {then}has {needs} free"
    who = f"that node {then}has" if is_one else f"they {then}have"
    return f"{who} room for {numbers.left} such pods ({needs})"


def _some_change(
    axes: Axes, numbers: NodeNumbers, shape: Shape, asked: Mapping[int, int] = _NOTHING
) -> str:
    """Say what could open a node to it, the nearest first; of each node only one thing is known.

    One node more may not be enough for many pods, or while others have the room beside it.
    """
    counts, own = numbers.counts, numbers.own
    foreign = [it for it in _REMEDIES if counts.get(it, 0) > own.get(it, 0)]
    if {*numbers.small} == {axes.pods} and not shape.lacking:  # each pod needs a place
        foreign.remove(Obstacle.TOO_SMALL)
    changes = [_REMEDIES[it] for it in sorted(foreign, reverse=True)[:_FEW]]
    if Obstacle.CLAIM not in foreign and not (shape.own_claims and Obstacle.CLAIM in counts):
        changes.append("a node that matches is added")
    if not changes:
        return "It can never start: its own pods are in each other's way"
    if numbers.left == 1:
        return f"It can start when {_or(changes)}"
    is_as_it_is = Obstacle.TOO_SMALL not in foreign  # else it may ask for less
    needs = _listed(_amount(axes, r, n) for r, n in asked.items() if is_as_it_is)
    room = f"room for {numbers.left} such pods{needs and f' ({needs})'}"
    return f"It can start when {_or(changes)}, as long as there is then {room}"


def _for_kai(axes: Axes, numbers: NodeNumbers) -> Iterator[str]:
    for obstacle, count in numbers.counts.items():
        if obstacle != Obstacle.ROOM:
            yield f"{count} node(s) {_OBSTACLES[obstacle][1]}"
    for r, count in numbers.lacking.items():
        yield f"{count} node(s) didn't have enough resources: {axes.names[r]}"


def _asked(axes: Axes, resource: int, number: int) -> str:
    """Return what a pod asks for; a number that is cut off is not told."""
    if number < MOST:
        return _amount(axes, resource, number)
    kind = axes.kinds[resource]
    is_told = kind != NONE and (kind != Kind.GPU or resource in axes.gpus)
    unit = _UNIT_OF[Kind(kind)] if is_told else axes.names[resource]
    return f"more {unit} than any node can have"


def _amount(axes: Axes, resource: int, number: int) -> str:
    if resource == axes.pods:
        return f"{number} place{'' if number == 1 else 's'} for pods"
    kind = axes.kinds[resource]
    if kind == NONE or (kind == Kind.GPU and resource not in axes.gpus):
        return f"{number} {axes.names[resource]}"
    if kind == Kind.GPU and axes.gpus[1:]:
        return f"{_short(number / 1000)} {axes.names[resource]}"
    return _of_kind(Kind(kind), number)


def _at_least(kind: Kind, number: int) -> str:
    """Return an amount that would do, rounded up; it may be cut off."""
    if kind == Kind.MEMORY:
        unit = _MIB if 0 < number < _GIB / 100 else _GIB
        number = -(-(-(-number * 1000 // unit) * unit) // 1000)
    return ("at least " if number >= COUNTED_MOST else "") + _of_kind(kind, number)


def _of_kind(kind: Kind, number: int) -> str:
    if kind != Kind.MEMORY:
        return f"{_short(number / 1000)} {_UNIT_OF[kind]}"
    if 0 < number < _GIB / 100:
        return f"{_short(number / _MIB)} MiB memory"
    return f"{_short(number / _GIB)} GiB memory"


def _is_or_are(kind: Kind, number: int) -> str:
    one = _GIB if kind == Kind.MEMORY else 1000
    return "is" if number <= one else "are"


def _short(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _or(parts: list[str]) -> str:
    return _listed([*parts[:-1], f"or {parts[-1]}"] if parts[1:] else parts)


def _first(parts: Iterable[str], between: str = ", ") -> str:
    """Return the first of some parts, and that there are more."""
    told = [*islice(parts, _MOST_TOLD + 1)]
    return between.join(told[:_MOST_TOLD]) + (", …" if told[_MOST_TOLD:] else "")
