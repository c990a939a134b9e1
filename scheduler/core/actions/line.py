"""The line: which PodGroup is next in the cluster, and which room is kept for it.

A PodGroup of a queue that reserves, which has waited long enough and needs a whole node or more,
may become the next one. Room is kept as it is freed, on the nodes that are expected to complete it
soonest. How much is bounded, and for how long: by what it had waited before.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.actions.strict_queues import could_start
from scheduler.core.actions.targets import (
    NodeRoom,
    NodeSizes,
    Targets,
    node_room,
    targets_of,
)
from scheduler.core.gang import SignatureRuns, is_satisfied
from scheduler.core.model.line import KeptNode, LineChange, LineNote, LineRecord
from scheduler.core.model.rejections import Rejection
from scheduler.core.model.resources import NONE, Ints, ResourceKind
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.reserved_places import KeptPlan, WantedRoom
from scheduler.core.nodes.strategies.strategy import EVERYWHERE, RequestKey
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason

if TYPE_CHECKING:
    from scheduler.core.nodes.nominated import NominationAccess

_WAITS_FOR_CAPACITY: Final = frozenset(
    {
        UnschedulableReason.FRAGMENTED,
        UnschedulableReason.NO_CAPACITY,
        UnschedulableReason.PREEMPTION_DELAY,
    }
)
_EXCEEDS: Final = frozenset(
    {UnschedulableReason.EXCEEDS_LIMIT, UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA}
)
_GPU: Final = ResourceKind.GPU
_STARTED_S: Final = 600  # after it has run for so long a PodGroup loses its place for good
_MOST_ASKED: Final = 64  # requests that are tried without kept room, for messages
_Key: TypeAlias = tuple[int, bool, RequestKey]  # with the queue, and whether it is preemptible


class _Candidate(NamedTuple):
    row: int
    targets: Targets
    planned_at: int


def keep_room(session: Session) -> None:
    """Choose the next PodGroup and keep room for it; call it before others are attempted."""
    if session.snapshot.queues.reserving and session.snapshot.lines:
        found = _Candidates(session).next
        if found is not None:
            row, targets, planned_at = found
            awaited = {it.node: it.free_at for it in targets.nodes}
            wanted = _wanted(session, found)
            session.kept.keep(row, wanted, KeptPlan(planned_at, awaited))


def line_changes(session: Session) -> tuple[tuple[LineChange, ...], int | None]:
    """Return the records that differ from those of the snapshot.

    And when time alone changes the line, in seconds since 1970; None if it does not.
    """
    snapshot = session.snapshot
    if not snapshot.queues.reserving and not snapshot.lines:
        return (), None
    nodes = session.kept.nodes if session.kept.is_held else ()
    with session.kept.lifted():  # its charge is no reason why others wait
        return _Records(session, nodes).changes()


def line_note(session: Session) -> LineNote | None:
    """Return what is kept at the end of the plan."""
    kept = session.kept
    nodes = kept.nodes if kept.is_held else ()
    if not nodes:
        return None
    since, now = session.snapshot.lines[kept.row].since_by_node, session.snapshot.now
    awaited = {it: at for it, at in kept.plan.awaited.items() if at}
    noted = [
        it._replace(since=since.get(it.node, now), free_at=awaited.pop(it.node, 0)) for it in nodes
    ]
    needed = session.attempts[kept.row].amounts[_GPU]
    later = tuple([KeptNode(node, 0, free_at=at) for node, at in awaited.items()])
    return LineNote(kept.row, needed, tuple(noted), later, kept.plan.planned_at)


def with_line_notes(
    session: Session, note: LineNote | None, rejections: Iterable[Rejection]
) -> Iterator[Rejection]:
    """Say what is kept to the PodGroup for which it is, and to those that would fit without it."""
    if note is None:
        yield from rejections
        return
    told = _that_would_fit(session) | {note.podgroup}
    for it in rejections:
        yield replace(it, line=note) if it.podgroup in told else it


def _that_would_fit(session: Session) -> set[int]:
    """Return the PodGroups that wait for room and would fit if none were kept.

    Of many different ones that is asked of the first only.
    """
    known: dict[tuple[NominationAccess, RequestKey], bool] = {}
    found = set()
    with session.kept.lifted():
        for row, rejection in session.rejections.items():
            if rejection.reason not in _WAITS_FOR_CAPACITY or row not in session.attempts:
                continue
            key = session.nominated_capacity.access(row), session.attempts[row].request_key
            if key not in known and len(known) < _MOST_ASKED:
                known[key] = session.failed_placement(row) is None
            if known.get(key):
                found.add(row)
    return found


class _Shapes:
    """For which requests room may be kept, whichever PodGroup it is and however long it waited."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._nodes: Final = NodeSizes(session)
        self._sizes: Final[dict[SignatureRuns, int]] = {}
        # What they are called for later plans; "" if nothing is kept.
        self.known: Final[dict[_Key, str]] = {}

    def key(self, row: int) -> _Key:
        podgroup = self._session.snapshot.podgroups[row]
        return podgroup.queue, podgroup.is_preemptible, self._session.attempts[row].request_key

    def request(self, row: int) -> str:
        key = self.key(row)
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = self._request(row)
        return known

    def _request(self, row: int) -> str:
        session = self._session
        snapshot, attempt = session.snapshot, session.attempts[row]
        queue, gpus = snapshot.podgroups[row].queue, attempt.amounts[_GPU]
        is_kept = (
            attempt.strategy is EVERYWHERE
            and not any(session.nodes.devices.of[it] for it, _ in attempt.signatures)
            and could_start(session, row)
            and gpus >= self._typical_node(attempt.signatures)
            and self._is_within_shares(row)
        )
        pods = sum([count for _, count in attempt.signatures])
        return f"{snapshot.queues.names[queue]} {pods} {gpus}" if is_kept else ""

    def _typical_node(self, runs: SignatureRuns) -> int:
        if runs not in self._sizes:
            self._sizes[runs] = self._nodes.typical(it for it, _ in runs)
        return self._sizes[runs]

    def _is_within_shares(self, row: int) -> bool:
        """Say whether what a PodGroup requests is, alone, within the share on every level."""
        session, amounts = self._session, self._session.attempts[row].amounts
        return all(
            amount <= most
            for q in session.usage.paths[session.snapshot.podgroups[row].queue]
            for amount, most in zip(amounts, session.queue_order.share(q), strict=True)
            if amount
        )


def _is_new(session: Session, row: int) -> bool:
    """Say whether a PodGroup is to start: none of it runs, and no place is reserved for it."""
    podgroup, attempts = session.snapshot.podgroups[row], session.attempts
    return (
        podgroup.can_reserve
        and not podgroup.has_running
        and not attempts.has_reserved_places(row)
        and not is_satisfied(podgroup.tree, attempts.assigned(row))
    )


class _Candidates:
    """The PodGroups for which room may be kept now."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._now: Final = session.snapshot.now
        self._shapes: Final = _Shapes(session)
        self._room: NodeRoom | None = None
        self._known: Final[dict[_Key, Targets | None]] = {}  # of those for which nothing is kept

    @property
    def next(self) -> _Candidate | None:
        """Return the one that is next; one that is it stays it while room can be kept."""
        session, lines = self._session, self._session.snapshot.lines
        latest = self._now - session.policies.line.eligible_after_s
        old = [row for row, it in lines.items() if it.since <= latest]  # of most it is known so
        eligible = [row for row in sorted(old) if self._is_eligible(row)]
        for row in [row for row in eligible if lines[row].next_since]:
            record = lines[row]
            is_over = self._now >= record.next_since + record.turn_s(self._now)
            if is_over or record.used_at(self._now) >= self._budget(row):
                session.kept.gave_up.add(row)
            elif (found := self._candidate(row)) is not None:
                return found
        by_queue = defaultdict[int, list[int]](list)
        for row in eligible:
            if row not in session.kept.gave_up:
                by_queue[session.snapshot.podgroups[row].queue].append(row)
        heads = [it for it in map(self._first, by_queue.values()) if it is not None]
        return max(heads, key=lambda it: (lines[it.row].waited_s(self._now), -it.row), default=None)

    def _is_eligible(self, row: int) -> bool:
        session, record, now = self._session, self._session.snapshot.lines[row], self._now
        return (
            record.resumed(now).waited_s(now) >= session.policies.line.eligible_after_s
            and now >= record.again_at
            and row in session.attempts
            and session.snapshot.podgroups[row].queue in session.snapshot.queues.reserving
            and record.request == self._shapes.request(row)
            and _is_new(session, row)
        )

    def _budget(self, row: int) -> int:
        """Return the thousandths of GPUs times seconds that may be kept for a PodGroup in all."""
        record = self._session.snapshot.lines[row]
        return self._session.attempts[row].amounts[_GPU] * record.earned_s(self._now)

    def _first(self, rows: list[int]) -> _Candidate | None:
        """Return the first PodGroup of a queue for which room can be kept."""
        rows.sort(key=lambda row: self._session.attempts[row].key)
        return next((it for it in map(self._candidate, rows) if it is not None), None)

    def _candidate(self, row: int) -> _Candidate | None:
        """Return where room could be kept for a PodGroup.

        None if it would not start on it: its queues have their shares and keep them, other pods
        than ours are in the way, or it needs more than the cap and one node and its start cannot be
        planned as long as it may be the next one.
        """
        session, record = self._session, self._session.snapshot.lines[row]
        key = self._shapes.key(row)
        if record.nodes:
            targets = self._targets(row, record)
        elif key in self._known:
            targets = self._known[key]
        else:
            targets = self._known[key] = self._targets(row, record)
        if targets is None:
            return None
        end = (record.next_since or self._now) + record.turn_s(self._now)
        planned_at = targets.planned_at if targets.planned_at <= end else 0
        most = _cap(session) + _largest_node(session.snapshot)
        if not planned_at and session.attempts[row].amounts[_GPU] > most:
            return None
        return _Candidate(row, targets, planned_at)

    def _targets(self, row: int, record: LineRecord) -> Targets | None:
        session = self._session
        self._room = self._room or node_room(session)
        signatures = session.attempts[row].signatures
        targets = targets_of(session, signatures, self._room, record.nodes)
        is_enough = targets is not None and _may_be_kept(session, row, targets)
        return targets if is_enough else None


class _Records:
    """The records of all PodGroups after the plan."""

    def __init__(self, session: Session, nodes: tuple[KeptNode, ...]) -> None:
        self._session: Final = session
        self._nodes: Final = nodes
        self._now: Final = session.snapshot.now
        self._back_off_s: Final = session.policies.line.back_off_s
        self._shapes: Final = _Shapes(session)
        self._changes: Final[list[LineChange]] = []
        self._at: Final = [session.kept.plan.planned_at]  # when time alone changes something

    def changes(self) -> tuple[tuple[LineChange, ...], int | None]:
        session = self._session
        lines, reserving = session.snapshot.lines, session.snapshot.queues.reserving
        podgroups, placed = session.snapshot.podgroups, session.placed
        waiting = {
            row for row, it in session.rejections.items() if it.reason in _WAITS_FOR_CAPACITY
        }
        is_bound = {it.podgroup: bool(it.binds) for it in session.allocations}
        for row in self._unsteady(waiting):
            self._note(row, lines[row], self._after(row, lines[row], is_bound=is_bound.get(row)))
        for row in waiting - lines.keys() - placed:
            if podgroups[row].queue in reserving and self._is_waiting(row):
                self._note(row, None, LineRecord(self._now, self._shapes.request(row)))
        self._changes.sort(key=lambda it: it.podgroup)
        return tuple(self._changes), min((at for at in self._at if at > self._now), default=None)

    def _unsteady(self, waiting: set[int]) -> list[int]:
        """Return the PodGroups whose records may change; most stay: this is asked of all."""
        session, at, now = self._session, self._at, self._now
        podgroups, reserving = session.snapshot.podgroups, session.snapshot.queues.reserving
        placed, after_s = session.placed, session.policies.line.eligible_after_s
        attempts, known = session.attempts, self._shapes.known
        found = []
        for row, record in session.snapshot.lines.items():
            podgroup = podgroups[row]
            if (
                row not in waiting
                or row in placed
                or record.next_since
                or record.paused_at
                or podgroup.has_running
                or podgroup.queue not in reserving
                or record.request
                != (
                    # The key of its shape, without a call.
                    known.get((podgroup.queue, podgroup.is_preemptible, attempts[row].request_key))
                    or self._shapes.request(row)
                )
                or row == session.kept.row
            ):
                found.append(row)
            elif record.since + record.paused_s + after_s > now:
                at.append(record.since + record.paused_s + after_s)
            elif record.again_at > now:
                at.append(record.again_at)
        return found

    def _note(self, row: int, before: LineRecord | None, after: LineRecord | None) -> None:
        if after is not before and after != before:
            self._changes.append(LineChange(row, after))
        if after is None or after.paused_at:
            return
        after_s = self._session.policies.line.eligible_after_s
        self._at.extend((after.since + after.paused_s + after_s, after.again_at))
        if after.next_since:
            self._at.extend(self._ends_of_turn(row, after))

    def _ends_of_turn(self, row: int, record: LineRecord) -> Iterator[int]:
        yield record.next_since + record.turn_s(self._now)
        if record.gpus:
            budget = self._session.attempts[row].amounts[_GPU] * record.earned_s(self._now)
            yield self._now + max(1, (budget - record.used_at(self._now)) // record.gpus + 1)

    def _after(self, row: int, before: LineRecord, *, is_bound: bool | None) -> LineRecord | None:
        session, now = self._session, self._now
        podgroup, kept = session.snapshot.podgroups[row], session.kept
        if is_bound is not None:  # a nominated one that loses its room has not waited in between
            return None if is_bound else before.not_next(now)
        if podgroup.queue not in session.snapshot.queues.reserving:
            return None
        if podgroup.has_running:  # or its binds are about to fail
            has_started = before.paused_at and now >= before.paused_at + _STARTED_S
            return None if has_started else before.paused(now)
        record = before.gave_up(now, self._back_off_s) if row in kept.gave_up else before
        if not self._is_waiting(row):
            return record.paused(now)
        record, request = record.resumed(now), self._shapes.request(row)
        if record.request != request:
            return record.begun_anew(now, request, self._back_off_s)
        return record.keeping(now, self._nodes) if row == kept.row else record.not_next(now)

    def _is_waiting(self, row: int) -> bool:
        """Say whether a PodGroup waits for room, and could have it kept."""
        session, rejection = self._session, self._session.rejections.get(row)
        if rejection is None or row not in session.attempts:
            return False
        reason = rejection.reason
        is_for_room = reason in _WAITS_FOR_CAPACITY or (
            reason in _EXCEEDS and session.refusal(session.usage, row) is None
        )
        return is_for_room and bool(self._shapes.request(row)) and _is_new(session, row)


def _share_left(session: Session, queue: int) -> list[list[float]]:
    """Return what a queue and each above it may have more, by kind."""
    usage, share = session.usage, session.queue_order.share
    return [
        [most - has for most, has in zip(share(q), usage.allocated[q], strict=True)]
        for q in usage.paths[queue]
    ]


def _may_be_kept(session: Session, row: int, targets: Targets) -> bool:
    """Say whether its queues may have something of what a PodGroup requests.

    If not now, then when pods of theirs have ended on the nodes on which it is to start.
    """
    snapshot, paths = session.snapshot, session.usage.paths
    queue, requested = snapshot.podgroups[row].queue, session.attempts[row].amounts
    full = [
        q
        for q, left in zip(paths[queue], _share_left(session, queue), strict=True)
        if any(one and more <= 0 for one, more in zip(requested, left, strict=True))
    ]
    if not full:
        return True
    pods = snapshot.pods
    rows = np.flatnonzero(np.isin(pods.node, [it.node for it in targets.nodes]))
    found = {int(it) for it in np.unique(pods.podgroup[rows])} - {NONE}
    return any(full[0] in paths[snapshot.podgroups[it].queue] for it in found)


def _wanted(session: Session, candidate: _Candidate) -> list[WantedRoom]:
    """Return what may be kept: within the cap, unless it is planned, and within the shares.

    The last node that a PodGroup needs comes on top of the cap. Otherwise small pods would keep it
    from getting free for ever.
    """
    snapshot, row = session.snapshot, candidate.row
    most, last = _cap(session), session.attempts[row].amounts[_GPU] - _largest_node(snapshot)
    levels = _share_left(session, snapshot.podgroups[row].queue)
    left = [min(of_kind) for of_kind in zip(*levels, strict=True)]
    free, wanted, gpus = session.nodes.resources.free.copy(), dict[int, Ints](), 0
    for node, signature, pods, _ in candidate.targets.nodes:
        request = np.array(snapshot.signatures[signature].request, dtype=np.int64)
        kept = np.minimum(pods * request, free[node].clip(min=0))
        charged = session.kept.charge_of([kept])
        if not charged[_GPU] and snapshot.signatures[signature].queue_request[_GPU]:
            continue  # nothing is there yet
        if not (candidate.planned_at or gpus + charged[_GPU] <= most or gpus >= last):
            continue
        if any(one > more for one, more in zip(charged, left, strict=True)):
            continue
        free[node] -= kept
        gpus += charged[_GPU]
        left = [more - one for more, one in zip(left, charged, strict=True)]
        wanted[node] = wanted.get(node, 0) + kept
    return [WantedRoom(node, kept) for node, kept in wanted.items()]


def _cap(session: Session) -> int:
    snapshot = session.snapshot
    part = snapshot.total[_GPU] * session.policies.line.max_kept_percent // 100
    return max(part, _largest_node(snapshot))


def _largest_node(snapshot: Snapshot) -> int:
    gpus = snapshot.nodes.allocatable[:, list(snapshot.resources.gpus)].sum(axis=1)
    return int(gpus.max(initial=0))
