"""A large gang among a stream of small pods, plan by plan: it starts, and charges stay exact."""

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

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
NODES: Final = 3
ONE, EIGHT = signature(gpu=1), signature(gpu=8)


class _Stream:
    """Pods with one GPU, of which more come than there is room for, and gangs of 2 x 8."""

    def __init__(self, seed: int, *, is_reserving: bool, gangs: int = 1) -> None:
        self._random: Final = Random(seed)
        self._queue: Final = SnapshotQueue("team", quota=8 * NODES, is_reserving=is_reserving)
        self._running: dict[int, tuple[int, int]] = {}  # by pod: its node, and when it ends
        self._waiting: list[int] = []
        self._pods = 0
        self._lines: dict[int, LineRecord] = {}  # by gang
        self._gangs: Final = dict.fromkeys(range(gangs), 0)  # and when it started
        self._ends: dict[int, tuple[list[int], int]] = {}
        self.most_kept = 0

    def run(self) -> dict[int, int]:
        """Return in which minute each gang started; 0 is never."""
        for minute in range(1, MINUTES + 1):
            self._running = {it: at for it, at in self._running.items() if at[1] > minute}
            self._ends = {it: at for it, at in self._ends.items() if at[1] > minute}
            for _ in range(self._random.choice((0, 1, 1, 2, 2))):
                self._waiting.append(self._pods)
                self._pods += 1
            self._plan(minute)
            if all(self._gangs.values()):
                break
        return self._gangs

    def _plan(self, minute: int) -> None:
        builder = Builder([SnapshotNode()] * NODES, [self._queue])
        rows: list[tuple[str, int]] = []
        for pod, (node, _) in self._running.items():
            builder.running_podgroup([node], ONE)
            rows.append(("running", pod))
        for gang, (nodes, _) in self._ends.items():
            builder.running_podgroup(nodes, EIGHT)
            rows.append(("running", gang))
        for gang, started in self._gangs.items():
            if not started and minute >= FIRST:
                builder.uniform_podgroup(2, EIGHT)
                rows.append(("gang", gang))
        self._waiting = self._waiting[:40]
        for pod in self._waiting:
            builder.uniform_podgroup(1, ONE)
            rows.append(("pod", pod))
        lines = {
            row: self._lines[one]
            for row, (kind, one) in enumerate(rows)
            if kind == "gang" and one in self._lines
        }
        snapshot = builder.snapshot(now=60 * minute, lines=lines)
        found = plan(snapshot, POLICIES)
        self._carry_out(found, rows, minute)
        nexts = [it for it in self._lines.values() if it.next_since]
        assert len(nexts) <= 1
        kept = found.line_note.gpus if found.line_note else 0
        assert kept == sum([it.gpus for it in nexts])
        self.most_kept = max(self.most_kept, kept)

    def _carry_out(self, found: Plan, rows: list[tuple[str, int]], minute: int) -> None:
        for change in found.line:
            gang = rows[change.podgroup][1]
            self._lines.pop(gang, None)
            if change.record is not None:
                self._lines[gang] = change.record
        for allocation in found.allocations:
            kind, one = rows[allocation.podgroup]
            nodes = [it.node for it in allocation.binds]
            if kind == "gang":
                self._gangs[one] = minute
                self._ends[one] = nodes, minute + 30
            else:
                self._waiting.remove(one)
                self._running[one] = nodes[0], minute + self._random.randint(10, 40)


# seed -> whether room is kept
STREAMS: list[Case[tuple[int, bool], bool]] = [
    Case("room is kept", (1, True), True),
    Case("room is kept in another stream", (2, True), True),
    Case("without it the gang never starts", (1, False), False),
]


@pytest.mark.parametrize("case", STREAMS, ids=ids)
def test_a_gang_starts_in_a_stream(case: Case[tuple[int, bool], bool]) -> None:
    """Of one node more than the cap, in 1,000 minutes."""
    seed, is_reserving = case.given
    stream = _Stream(seed, is_reserving=is_reserving)
    started = stream.run()[0]
    assert bool(started) is case.want
    assert stream.most_kept < 16_000


def test_gangs_start_one_after_the_other() -> None:
    """None waits for ever, and never two are next."""
    assert all(_Stream(3, is_reserving=True, gangs=3).run().values())


def test_charges_of_kept_room_are_exact() -> None:
    """When it is given up the queues and nodes are as they were."""
    builder = Builder([SnapshotNode()] * 3, [SnapshotQueue("team", quota=24, is_reserving=True)])
    builder.running_podgroup([0], EIGHT)
    builder.running_podgroup([1], signature(gpu=3))
    builder.uniform_podgroup(2, EIGHT)
    session = Session(builder.snapshot(), POLICIES)
    usage = [list(it) for it in session.usage.allocated]
    free = session.nodes.resources.free.copy()
    wanted = {
        node: np.array([1000, 0, 1, gpus], dtype=np.int64) for node, gpus in ((1, 5000), (2, 8000))
    }
    session.kept.keep(2, [WantedRoom(node, amounts) for node, amounts in wanted.items()])
    assert session.usage.allocated[0][ResourceKind.GPU] == usage[0][ResourceKind.GPU] + 13_000
    checkpoint = session.statement.checkpoint
    session.statement.allocate(1, builder.signature_row(signature(gpu=3)), on_idle=True)
    assert session.kept.release()
    session.kept.restore()
    session.statement.roll_back(checkpoint)
    session.kept.end()
    assert session.usage.allocated == usage
    assert (session.nodes.resources.free == free).all()
