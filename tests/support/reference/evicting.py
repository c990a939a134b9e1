"""Reclaim and preempt by looking at every set of candidates: rules 28 to 40."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from operator import add
from typing import Any

from tests.support.reference import rights
from tests.support.reference.amounts import added, axes
from tests.support.reference.ending import Saved, awaits_its_own, lose, take
from tests.support.reference.neighbours import is_minded
from tests.support.reference.shrinking import steps
from tests.support.reference.things import Cluster, Leaf, Pod, Queue, Unit
from tests.support.reference.times import is_protected
from tests.support.reference.trees import can_be, chunk, satisfied
from tests.support.reference.turns import (
    next_unit,
    queue_rank,
    turn_rank,
    unit_rank,
)
from tests.support.reference.victims import in_order

__all__ = [
    "MOST",
    "Block",
    "TooMany",
    "blocks_of",
    "evict",
    "first",
    "line_of",
    "queues_of",
    "take_back",
]

MOST = 8  # candidates
_CURABLE = ("Fragmented", "NoCapacity", "ExceedsLimit")


class TooMany(Exception):
    """So many candidates that their sets are not looked at."""


@dataclass(eq=False)
class Block:
    """What units lose at once, and in line what that is beyond blocks before it."""

    units: list[Unit]
    queue: str
    pods: list[Pod]
    more: rights.Asked
    rank: tuple[Any, ...]
    asks: list[rights.Asked]
    is_whole: bool = False

    @property
    def is_partly_done(self) -> bool:
        """Say whether pods of one of its units are there, and others of that unit succeeded."""
        return any(
            one.owner and {"there", "succeeded"} <= {pod.state for pod in one.pods}
            for one in self.units
        )


def take_back(
    cluster: Cluster, verdicts: dict[Unit, str], actions: Iterable[str]
) -> Iterator[tuple[Unit, str, list[Pod]]]:
    """Yield who gets room by which action, and the pods that have to go for it."""
    taken: set[Unit] = set()
    losers: set[Unit] = set()
    # What somebody asks for that has lost something since is what it asked for before (rule 32).
    before = [
        (turn_rank(cluster, unit), unit, _sum(chunk(unit.root)))
        for unit, verdict in verdicts.items()
        if verdict != "PodsMissing"
    ]
    for action in actions:
        left = [
            unit
            for unit, verdict in verdicts.items()
            if verdict in _CURABLE and not unit.awaits_its_own
        ]
        while left := [unit for unit in left if unit not in losers]:
            unit = next_unit(cluster, left)
            left.remove(unit)
            if awaits_its_own(cluster, unit, chunk(unit.root)):
                continue
            mine = turn_rank(cluster, unit)
            ahead = [
                asked
                for rank, one, asked in before
                if one in verdicts and one.queue == unit.queue and rank < mine
            ]
            asks = [_sum(chunk(unit.root)), *ahead]
            gone = _claim(cluster, unit, action, asks, is_later=bool(losers), spared=taken)
            if gone is not None:
                taken.add(unit)
                before = [one for one in before if one[1] is not unit]
                losers.update(_owners(cluster, gone))
                yield unit, action, gone


def _owners(cluster: Cluster, pods: list[Pod]) -> Iterator[Unit]:
    """Yield the units that lost something, and those that leave with them."""
    for unit in cluster.units:
        if any(pod in pods for pod in unit.pods):
            yield from _bundle(cluster, unit)


def _bundle(cluster: Cluster, unit: Unit) -> list[Unit]:
    return [one for one in cluster.units if one is unit or (unit.owner and one.owner == unit.owner)]


def _claim(
    cluster: Cluster,
    unit: Unit,
    action: str,
    asks: list[rights.Asked],
    *,
    is_later: bool,
    spared: set[Unit],
) -> list[Pod] | None:
    """Return who goes for a unit, nobody if what is left is enough; None if it gets nothing."""
    asked = _sum(chunk(unit.root))
    known = queues_of(cluster)
    if action == "reclaim" and not rights.has_claim(
        known[unit.queue], asked, is_fixed=not unit.preemptible
    ):
        return None
    if is_later and not _try(cluster, unit, []):
        return []
    found = [it for it in blocks_of(cluster, spared) if _may_go(cluster, unit, action, it)]
    tries = [*_tries(cluster, action, found)]
    if unit.patient:
        unit.is_held = unit.is_held or any(some for some, _ in tries)
        return None
    if len(found) > MOST:
        raise TooMany
    for blocks, keeps in tries:
        gone = _find(cluster, unit, action, asks, (blocks, keeps))
        if gone is not None:
            return gone
    return None


def _tries(cluster: Cluster, action: str, found: list[Block]) -> Iterator[tuple[list[Block], bool]]:
    """Yield who might lose something, and whether budgets are kept: the mildest way first."""
    unbarred = [it for it in found if cluster.may_go(it.pods)]
    yield [it for it in unbarred if not it.is_partly_done], True
    yield unbarred, True
    if action == "reclaim" and not cluster.keeps_budgets:
        yield found, False


def _find(
    cluster: Cluster,
    unit: Unit,
    action: str,
    asks: list[rights.Asked],
    some: tuple[list[Block], bool],
) -> list[Pod] | None:
    """Return the pods of some blocks that go for a unit, which then has its room; or None."""
    found, keeps = some
    known, asked = queues_of(cluster), asks[0]
    line = in_order(cluster, line_of(cluster, found), asked)
    line.sort(key=lambda it: (not cluster.may_go(it.pods), it.is_partly_done))

    def leaves_room(some: tuple[int, ...]) -> bool:
        return not _would(cluster, unit, [line[rank] for rank in some])

    def does(some: tuple[int, ...]) -> bool:
        blocks = [line[rank] for rank in some]
        if keeps and not cluster.may_go(pod for block in blocks for pod in block.pods):
            return False
        if action == "reclaim":
            lost = [(known[block.queue], amounts) for block, amounts in _losses(blocks)]
            may, is_fair = rights.take_all(known[unit.queue], asked, lost, Fraction(1))
            if not all(may) or not is_fair or not _comes_first(cluster, unit, asks, blocks):
                return False
        return leaves_room(some)

    ranks = first(len(line), does, leaves_room)
    if ranks is None:
        return None
    gone = [pod for rank in ranks for pod in line[rank].pods]
    assert not _try(cluster, unit, [line[rank] for rank in ranks])
    for budget in cluster.budgets:
        budget.left -= len(set(gone).intersection(budget.pods))
    return gone


def _may_go(cluster: Cluster, unit: Unit, action: str, block: Block) -> bool:
    """Say whether a block comes into question for what a unit asks for next."""
    pods = chunk(unit.root)
    if any(is_minded(pod, other) for pod in pods for other in block.pods):
        return False
    if block.is_whole and any(is_protected(cluster, action, unit, one) for one in block.units):
        return False
    if action == "reclaim":
        return _concerns(queues_of(cluster), unit, _sum(pods), block)
    return block.queue == unit.queue and all(one.priority < unit.priority for one in block.units)


def first(
    count: int,
    does: Callable[[tuple[int, ...]], bool],
    leaves_room: Callable[[tuple[int, ...]], bool],
) -> tuple[int, ...] | None:
    """Return the first set that does and of which everybody is needed for there to be room."""
    for some in sorted(set_ for n in range(1, count + 1) for set_ in combinations(range(count), n)):
        if does(some):
            fewer = [tuple(rank for rank in some if rank != one) for one in some]
            if not any(rest and leaves_room(rest) for rest in fewer):
                return some
    return None


def _comes_first(
    cluster: Cluster, unit: Unit, asks: list[rights.Asked], blocks: list[Block]
) -> bool:
    """Say whether who claims would have its turn before anybody who lost something."""
    kept = {queue: [*queue.allocated] for queue in cluster.queues.values()}
    known = queues_of(cluster)
    added_to = {name: [*map(add, it.has, asks[0])] for name, it in known.items()}
    for block, amounts in _losses(blocks):
        for queue in cluster.way_up(block.queue):
            queue.allocated = [has - n for has, n in zip(queue.allocated, amounts, strict=True)]
    ways = [
        (cluster.way_up(block.queue), asked, bool(block.units[0].owner))
        for block in blocks
        for asked in block.asks
    ]
    ways = [it for it in ways if not any(_passes(queue, it[1]) for queue in it[0])]
    answer = all(
        queue_rank(cluster, mine, [*asked]) < queue_rank(cluster, theirs, [*amounts])
        for asked in asks
        for way, amounts, is_bundle in ways
        for mine in cluster.way_up(unit.queue)
        for theirs in way
        if mine is not theirs and mine.parent == theirs.parent
        if asked != asks[0] or not is_bundle or known[mine.name].is_over_quota(added_to[mine.name])
    )
    for queue, has in kept.items():
        queue.allocated = has
    return answer


def _passes(queue: Queue, more: tuple[int, ...]) -> bool:
    return any(
        asked > 0 and limit != -1 and has + asked > limit
        for asked, limit, has in zip(more, queue.limit, queue.allocated, strict=True)
    )


def _concerns(
    known: dict[str, rights.Queue],
    unit: Unit,
    asked: rights.Asked,
    block: Block,
) -> bool:
    if block.queue == unit.queue:
        return False
    return rights.comes_into_question(known[unit.queue], asked, known[block.queue])


def queues_of(cluster: Cluster) -> dict[str, rights.Queue]:
    """Return the queues as the rules of reclaim see them."""
    known: dict[str, rights.Queue] = {}
    for name, queue in cluster.queues.items():
        known[name] = rights.Queue(
            None,
            (queue.quota[0], queue.quota[1], queue.quota[2]),
            (queue.limit[0], queue.limit[1], queue.limit[2]),
            (queue.fair[0], queue.fair[1], queue.fair[2]),
            [*queue.allocated],
            [*queue.fixed],
            queue.goal,
        )
    for name, queue in cluster.queues.items():
        known[name].above = known.get(queue.parent)
    return known


def blocks_of(cluster: Cluster, spared: set[Unit]) -> Iterator[Block]:
    """Yield what units could lose: what comes on top step by step, then all of it."""
    seen: set[Unit] = set()
    for unit in cluster.units:
        units = _bundle(cluster, unit)
        if unit in seen or not all(_may_lose(cluster, one, spared) for one in units):
            continue
        seen |= {*units}
        pods = [pod for one in units for pod in _there(one)]
        if not pods or len({one.queue for one in units}) > 1:
            continue
        lost: list[Pod] = []
        for some in [] if unit.owner else steps(unit):
            more = _sum([pod for pod in some if pod not in lost])
            yield Block(units, unit.queue, some, more, unit_rank(unit, 2), [more])
            lost += some
        at = min(unit_rank(one) for one in units)
        if lost or any(pod.state == "evicted" for pod in unit.pods):
            at = unit_rank(unit, 1 if satisfied(unit.root) else 0)
        more = _sum([p for p in pods if p not in lost])
        is_plain = not unit.owner and isinstance(unit.root, Leaf)
        asks = [more] if is_plain else [_first_of(one) for one in units if _there(one)]
        yield Block(units, unit.queue, pods, more, at, asks, True)


def _first_of(unit: Unit) -> rights.Asked:
    """Return what a unit would ask for first of what it had; or else what it cannot spare."""
    kept = [(pod, pod.state) for pod in unit.pods]
    for pod, state in kept:
        pod.state = "there" if state == "evicted" else state
    there, spared = _there(unit), [pod for some in steps(unit) for pod in some]
    for pod in unit.pods:
        pod.state = {"there": "waiting", "waiting": "other"}.get(pod.state, pod.state)
    some = chunk(unit.root) if spared and can_be(unit.root) else []
    for pod, state in kept:
        pod.state = state
    return _sum(some or [pod for pod in there if pod not in spared])


def _may_lose(cluster: Cluster, unit: Unit, spared: set[Unit]) -> bool:
    way = cluster.way_up(unit.queue)
    return (
        unit.preemptible
        and not unit.stays
        and unit not in spared
        and bool(way)
        and not way[-1].parent
        and not cluster.is_misconfigured(unit)
        and not any(pod.state in ("bound", "nominated", "reserved") for pod in unit.pods)
    )


def _there(unit: Unit) -> list[Pod]:
    return [pod for pod in unit.pods if pod.state in ("there", "old")]


def line_of(cluster: Cluster, blocks: list[Block]) -> list[Block]:
    """Return who would lose something first, with everybody before gone."""
    left, line = list(blocks), []
    kept = {queue: [*queue.allocated] for queue in cluster.queues.values()}
    tops = [queue for queue in cluster.queues.values() if not queue.parent]
    while left:
        one = _last(cluster, tops, left)
        assert one is not None
        left.remove(one)
        line.append(one)
        for queue in cluster.way_up(one.queue):
            for i in range(3):
                queue.allocated[i] -= one.more[i]
    for queue, has in kept.items():
        queue.allocated = has
    return line


def _last(cluster: Cluster, queues: list[Any], left: list[Block]) -> Block | None:
    best = []
    for queue in queues:
        own = [(block.rank, -i, block) for i, block in enumerate(left) if block.queue == queue.name]
        one = (
            _last(cluster, queue.children, left)
            if queue.children
            else max(own, key=lambda it: it[:2], default=(0, 0, None))[2]
        )
        if one is not None:
            rank = [*queue_rank(cluster, queue, [0, 0, 0])]
            rank[4] = queue_rank(cluster, queue, [-n for n in one.more])[4]
            best.append((tuple(rank), one))
    return max(best, key=lambda it: it[0])[1] if best else None


def _losses(blocks: list[Block]) -> Iterator[tuple[Block, rights.Asked]]:
    """Yield blocks with what each takes that those before it have not."""
    gone: list[Pod] = []
    for block in blocks:
        yield block, _sum([pod for pod in block.pods if pod not in gone])
        gone += block.pods


def _would(cluster: Cluster, unit: Unit, blocks: list[Block]) -> str:
    """Return what would be in the way of a unit with some gone; all stays as it is."""
    return _try(cluster, unit, blocks, keeps=False)


def _try(cluster: Cluster, unit: Unit, blocks: list[Block], *, keeps: bool = True) -> str:
    pods = chunk(unit.root)
    saved = Saved(cluster)
    for block, amounts in [*_losses(blocks)]:
        lose(cluster, block.queue, amounts)
    evict(cluster, blocks)
    verdict = take(cluster, unit, pods, waits=bool(blocks))
    if verdict or not keeps:
        saved.restore()
    return verdict


def evict(cluster: Cluster, blocks: list[Block]) -> None:
    """Let pods go: their room is there for who can wait."""
    at = {machine.name: machine for machine in cluster.machines}
    for block, amounts in [*_losses(blocks)]:
        for queue in cluster.way_up(block.queue):
            for i in range(3):
                queue.allocated[i] -= amounts[i]
        for pod in block.pods:
            if pod.state in ("there", "old"):
                pod.state = "evicted"
                if pod.node in at:
                    at[pod.node].releasing = added(at[pod.node].releasing, pod.needs)


def _sum(pods: list[Pod]) -> rights.Asked:
    cpu, memory, gpu = (sum(axes(pod.needs)[i] for pod in pods) for i in range(3))
    return cpu, memory, gpu
