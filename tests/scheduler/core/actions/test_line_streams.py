"""Large gangs among streams of small pods, plan by plan: they start, and charges stay exact."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pytest

from scheduler.core.model.line import LineSettings
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.result import Plan
from scheduler.core.nodes.reserved_places import WantedRoom
from scheduler.core.plan import plan
from scheduler.core.session import Session
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.scheduler_names import Action

if TYPE_CHECKING:
    from scheduler.core.model.line import LineRecord

POLICIES = replace(build_policies(PolicySelection()), actions=(Action.ALLOCATE,))
MINUTES: Final = 1000
FIRST: Final = 60  # when the gangs come: all nodes are in use
MOST_WAITING: Final = 20  # small ones; the others come to nothing
EIGHT = signature(gpu=8)


class _Unit(NamedTuple):
    """A PodGroup, and for how long it runs."""

    queue: str
    pods: int
    gpus: int  # of each pod
    minutes: int
    priority: int = 50

    @property
    def is_gang(self) -> bool:
        return self.pods > 1 or self.priority < 50


_Arrivals: TypeAlias = Callable[[int, Random], Iterator[_Unit]]  # by the minute


class _Stream:
    """What arrives on nodes that are all in use, and how long it waits."""

    def __init__(
        self,
        nodes: Sequence[SnapshotNode],
        queues: Sequence[SnapshotQueue],
        arrivals: _Arrivals,
        *,
        seed: int = 1,
        max_percent: int = 10,
    ) -> None:
        self._nodes: Final = nodes
        self._queues: Final = queues
        self._arrivals: Final = arrivals
        self._random: Final = Random(seed)
        self._policies: Final = replace(POLICIES, line=LineSettings(1800, max_percent, 1800))
        self._units: Final[list[_Unit]] = []
        self._waiting: Final[dict[int, None]] = {}
        self._running: Final[dict[int, tuple[list[int], int]]] = {}  # its nodes, and when it ends
        self._lines: Final[dict[int, LineRecord]] = {}
        self.started: Final[dict[int, int]] = {}  # by gang; 0 is never
        self.gpu_minutes: Final[defaultdict[str, int]] = defaultdict(int)
        self.most_kept = 0

    def run(self, minutes: int = MINUTES, *, until_all_started: bool = True) -> "_Stream":
        for minute in range(1, minutes + 1):
            for it in [it for it, (_, end) in self._running.items() if end <= minute]:
                del self._running[it]
            for unit in self._arrivals(minute, self._random):
                small = sum([not self._units[it].is_gang for it in self._waiting])
                if unit.is_gang or small < MOST_WAITING:
                    self._waiting[len(self._units)] = None
                    if unit.is_gang:
                        self.started[len(self._units)] = 0
                    self._units.append(unit)
            self._plan(minute)
            for it in self._running:
                self.gpu_minutes[self._units[it].queue] += (
                    self._units[it].pods * self._units[it].gpus
                )
            if until_all_started and self.started and all(self.started.values()):
                break
        return self

    def _plan(self, minute: int) -> None:
        builder = Builder(self._nodes, self._queues)
        order = [*self._running, *self._waiting]
        for it in order:
            unit = self._units[it]
            one = signature(gpu=unit.gpus)
            more: dict[str, Any] = {"queue": unit.queue, "priority": unit.priority}
            if it in self._running:
                builder.running_podgroup(self._running[it][0], one, **more)
            else:
                builder.uniform_podgroup(unit.pods, one, **more)
        rows = {it: row for row, it in enumerate(order)}
        lines = {rows[it]: record for it, record in self._lines.items() if it in rows}
        found = plan(builder.snapshot(now=60 * minute, lines=lines), self._policies)
        self._carry_out(found, order, minute)
        nexts = [it for it in self._lines.values() if it.next_since]
        kept = found.line_note.gpus if found.line_note else 0
        assert len(nexts) <= 1
        assert kept == sum([it.gpus for it in nexts])  # nothing without a next one
        self.most_kept = max(self.most_kept, kept)

    def _carry_out(self, found: Plan, order: list[int], minute: int) -> None:
        for change in found.line:
            self._lines.pop(order[change.podgroup], None)
            if change.record is not None:
                self._lines[order[change.podgroup]] = change.record
        for allocation in found.allocations:
            it = order[allocation.podgroup]
            unit, nodes = self._units[it], [one.node for one in allocation.binds]
            del self._waiting[it]
            self._running[it] = nodes, minute + unit.minutes
            if unit.is_gang:
                self.started[it] = minute


def small_ones(queue: str, *most: int) -> _Arrivals:
    """More pods with one GPU than there is room for: any of these numbers in a minute."""

    def arrivals(_minute: int, random: Random) -> Iterator[_Unit]:
        for _ in range(random.choice(most)):
            yield _Unit(queue, 1, 1, random.randint(10, 40))

    return arrivals


def with_gangs(others: _Arrivals, *gangs: _Unit) -> _Arrivals:
    def arrivals(minute: int, random: Random) -> Iterator[_Unit]:
        yield from others(minute, random)
        if minute == FIRST:
            yield from gangs

    return arrivals


def own_queue(gpus: int, *, is_reserving: bool = True) -> list[SnapshotQueue]:
    return [SnapshotQueue("team", quota=gpus, is_reserving=is_reserving)]


_BUSY = small_ones("team", 0, 1, 1, 2, 2)
_GANG = _Unit("team", 2, 8, 30)


class _Setting(NamedTuple):
    nodes: int
    queues: list[SnapshotQueue]
    arrivals: _Arrivals
    seed: int = 1
    max_percent: int = 10


# -> whether all gangs start in 1,000 minutes
STREAMS: list[Case[_Setting, bool]] = [
    Case("room is kept", _Setting(3, own_queue(24), with_gangs(_BUSY, _GANG)), True),
    Case("in another stream", _Setting(3, own_queue(24), with_gangs(_BUSY, _GANG), 2), True),
    Case(
        "without it the gang never starts",
        _Setting(3, own_queue(24, is_reserving=False), with_gangs(_BUSY, _GANG)),
        False,
    ),
    Case(
        "one after the other",
        _Setting(3, own_queue(24), with_gangs(_BUSY, _GANG, _GANG, _GANG), 3),
        True,
    ),
    Case(
        "as large as the cap and one node",
        _Setting(
            5,
            own_queue(40),
            with_gangs(small_ones("team", 1, 2, 2, 3), _Unit("team", 3, 8, 30)),
            max_percent=40,
        ),
        True,
    ),
    Case(
        "beside small ones of a queue beyond its quota",
        _Setting(
            3,
            [SnapshotQueue("other"), SnapshotQueue("team", quota=16, is_reserving=True)],
            with_gangs(small_ones("other", 0, 1, 1, 2, 2), _GANG),
        ),
        True,
    ),
]


@pytest.mark.parametrize("case", STREAMS, ids=ids)
def test_gangs_start_in_a_stream(case: Case[_Setting, bool]) -> None:
    """Those of the cap and one node at most; and no more is kept than what they need."""
    it = case.given
    stream = _Stream(
        [SnapshotNode()] * it.nodes,
        it.queues,
        it.arrivals,
        seed=it.seed,
        max_percent=it.max_percent,
    ).run()
    assert stream.started
    assert all(stream.started.values()) is case.want
    assert stream.most_kept < 8000 * (it.nodes - 1)


FARMS: Final = [f"farm-{i}" for i in range(10)]


def farming(minute: int, random: Random) -> Iterator[_Unit]:
    """Ten queues of which a gang waits for nothing but the room, for pods of a larger priority."""
    yield from small_ones("honest", 1, 2, 2)(minute, random)
    for farm in FARMS:
        if minute == FIRST:
            yield _Unit(farm, 1, 2, 1, priority=40)
        if random.random() < 0.2:
            yield _Unit(farm, 1, 1, random.randint(10, 40))


def test_ten_queues_that_farm_reservations_gain_nothing() -> None:
    """Neither they together nor at the cost of a queue within its quota, beyond what is luck."""
    farms, honest = [], []
    for is_reserving in (False, True):
        queues = [SnapshotQueue("honest", quota=28)]
        queues += [SnapshotQueue(it, quota=1, is_reserving=is_reserving) for it in FARMS]
        found = []
        for seed in range(3):
            stream = _Stream([SnapshotNode(gpu=2)] * 20, queues, farming, seed=seed)
            found.append(stream.run(250, until_all_started=False).gpu_minutes)
            assert bool(stream.most_kept) is is_reserving
            assert stream.most_kept <= 4000  # 10 % of the GPUs
        farms.append(sum([one[it] for one in found for it in FARMS]))
        honest.append(sum([one["honest"] for one in found]))
    assert farms[1] <= 1.03 * farms[0]
    assert honest[1] >= 0.97 * honest[0]


def _session_that_keeps() -> Session:
    builder = Builder([SnapshotNode()] * 3, own_queue(24))
    builder.running_podgroup([0], EIGHT)
    builder.running_podgroup([1], signature(gpu=3))
    builder.uniform_podgroup(2, EIGHT)
    builder.signature_row(signature(gpu=2))
    session = Session(builder.snapshot(), POLICIES)
    wanted = ((1, 5000), (2, 8000))
    amounts = [WantedRoom(node, np.array([1000, 0, 1, gpus])) for node, gpus in wanted]
    session.kept.keep(2, amounts)
    return session


@pytest.mark.parametrize("seed", range(20))
def test_charges_of_kept_room_are_exact(seed: int) -> None:
    """Whatever is placed, evicted and rolled back meanwhile, and given up or kept again."""
    random, session = Random(seed), _session_that_keeps()
    kept, statement = session.kept, session.statement
    held = sum([it.gpus for it in kept.nodes])
    free, charged = session.nodes.resources.free, session.usage.allocated
    assert charged[0][ResourceKind.GPU] == 11_000 + held == 24_000
    checkpoints = [statement.checkpoint]
    for _ in range(30):
        match random.randrange(5):
            case 0 if kept.release():
                kept.restore()
            case 1:
                with kept.lifted():
                    checkpoint = statement.checkpoint
                    statement.allocate(2, 2, on_idle=True)
                    statement.roll_back(checkpoint)
            case 2:
                checkpoints.append(statement.checkpoint)
                statement.evict(1, 1)
            case 3 if kept.release():
                if free[2, 3] >= 2000:
                    statement.allocate(2, 2, on_idle=True)
                kept.restore()
            case _:
                statement.roll_back(checkpoints[random.randrange(len(checkpoints))])
                del checkpoints[1:]
        held = sum([it.gpus for it in kept.nodes])
        assert charged[0][ResourceKind.GPU] == 11_000 + held
        assert (free >= 0).all()
    statement.roll_back(checkpoints[0])
    kept.end()
    fresh = _session_that_keeps()
    fresh.kept.end()
    assert charged == fresh.usage.allocated
    assert (free == fresh.nodes.resources.free).all()
