"""The line: which PodGroup is next in the cluster, and which room is kept for it.

A PodGroup of a queue that reserves, which has waited long enough and needs a whole node or more,
may become the next one. Room is kept as it is freed, on the nodes that are expected to complete it
soonest. How much is bounded, and for how long: by what it had waited before.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
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
from scheduler.core.model.podgroup import PodSet
from scheduler.core.model.rejections import Rejection
from scheduler.core.model.resources import NONE, Amounts, Ints, ResourceKind
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
_FAR: Final = 2**62  # later than any time
_new_change: Final = partial(tuple.__new__, LineChange)
_MOST_ASKED: Final = 64  # requests that are tried without kept room, for messages
# With the queue, whether it is preemptible, which object its request is (equal ones are one object,
# and nothing is hashed of it), and what is charged: less if places are reserved for its pods.
_Key: TypeAlias = tuple[int, bool, int, Amounts]
_Alike: TypeAlias = tuple[str, list[int]]  # the request of some PodGroups, as in `_Shapes`


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
        self._sizes: Final[dict[SignatureRuns, int]] = {}
        self._shares: Final[dict[int, list[float]]] = {}  # by queue, the least of all levels
        # What they are called for later plans; "" if nothing is kept.
        self._known: Final[dict[_Key, str]] = {}

    @cached_property
    def _nodes(self) -> NodeSizes:
        return NodeSizes(self._session)

    def key(self, row: int) -> _Key:
        podgroup, attempt = self._session.snapshot.podgroups[row], self._session.attempts[row]
        return podgroup.queue, podgroup.is_preemptible, id(attempt.request_key), attempt.amounts

    def request(self, row: int) -> str:
        key = self.key(row)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.find_request(row)
        return known

    def find_request(self, row: int) -> str:
        session, attempt = self._session, self._session.attempts[row]
        podgroup, queues = session.snapshot.podgroups[row], session.snapshot.queues
        queue, gpus, runs = podgroup.queue, attempt.amounts[_GPU], attempt.signatures
        if (
            queue not in queues.reserving
            or attempt.strategy is not EVERYWHERE
            or not self._is_large(runs, gpus)
            or not self._is_within_shares(queue, attempt.amounts)
            or not could_start(session, row)
        ):
            return ""
        pods = runs[0][1] if len(runs) == 1 else sum([count for _, count in runs])
        return f"{queues.names[queue]} {pods} {gpus}"

    def _is_large(self, runs: SignatureRuns, gpus: int) -> bool:
        """Say whether pods without devices of their own request a whole node or more."""
        session = self._session
        least = self._sizes.get(runs)
        if least is None:
            has_devices = any(session.nodes.devices.of[it] for it, _ in runs)
            least = 2**60 if has_devices else self._nodes.least_large([it for it, _ in runs], gpus)
            self._sizes[runs] = least
        return gpus >= least

    def _is_within_shares(self, queue: int, amounts: Amounts) -> bool:
        """Say whether what is requested is, alone, within the share on every level."""
        least = self._shares.get(queue)
        if least is None:
            share = self._session.queue_order.share
            levels = [share(q) for q in self._session.usage.paths[queue]]
            least = levels[0] if len(levels) == 1 else [*map(min, zip(*levels, strict=True))]
            self._shares[queue] = least
        cpu, memory, gpu = amounts
        return (
            (cpu <= least[0] or not cpu)
            and (memory <= least[1] or not memory)
            and (gpu <= least[2] or not gpu)
        )


def _is_new(session: Session, row: int) -> bool:
    """Say whether a PodGroup is to start: none of it runs, and no place is reserved for it."""
    podgroup, attempts = session.snapshot.podgroups[row], session.attempts
    tree = podgroup.tree
    if isinstance(tree, PodSet) and not tree.reserved_places and row not in session.placed:
        has_members = tree.running + tree.succeeded >= tree.minimum
        return podgroup.can_reserve and not podgroup.has_running and not has_members
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
        # Of those for which nothing is kept: where they could start, and if their queues allow it.
        self._nodes: Final[dict[SignatureRuns, Targets | None]] = {}
        self._known: Final[dict[_Key, Targets | None]] = {}

    @cached_property
    def _room(self) -> NodeRoom:
        return node_room(self._session)

    @cached_property
    def _most(self) -> int:
        """What a PodGroup may need at most, unless its start is planned."""
        return _cap(self._session) + _largest_node(self._session.snapshot)

    @property
    def next(self) -> _Candidate | None:
        """Return the one that is next; one that is it stays it while room can be kept."""
        session, lines = self._session, self._session.snapshot.lines
        now, latest = self._now, self._now - session.policies.line.eligible_after_s
        # Of most it is known by two numbers that they are not eligible.
        old = [row for row, it in lines.items() if it.since <= latest and it.again_at <= now]
        for row in sorted([row for row in old if lines[row].next_since]):
            record = lines[row]
            if not self._is_eligible(row):
                continue
            is_over = self._now >= record.next_since + record.turn_s(self._now)
            if is_over or record.used_at(self._now) >= self._budget(row):
                session.kept.gave_up.add(row)
            elif (found := self._candidate(row)) is not None:
                return found
        heads = [it for it in map(self._first, self._by_queue(old)) if it is not None]
        return max(heads, key=lambda it: (lines[it.row].waited_s(self._now), -it.row), default=None)

    def _by_queue(self, rows: list[int]) -> list[list[int]]:
        """Return the eligible PodGroups of each queue, but those of hopeless shapes."""
        session, lines = self._session, self._session.snapshot.lines
        podgroups, attempts = session.snapshot.podgroups, session.attempts
        hopeless: dict[_Key, bool] = {}
        by_queue = defaultdict[int, list[int]](list)
        for row in rows:
            attempt, podgroup = attempts.get(row), podgroups[row]
            if attempt is None:
                continue
            key = podgroup.queue, podgroup.is_preemptible, id(attempt.request_key), attempt.amounts
            if hopeless.get(key) and not lines[row].nodes:
                continue
            if row in session.kept.gave_up or not self._is_eligible(row):
                continue
            if key not in hopeless:
                hopeless[key] = self._is_hopeless(row)
            if lines[row].nodes or not hopeless[key]:
                by_queue[podgroup.queue].append(row)
        return [*by_queue.values()]

    def _is_hopeless(self, row: int) -> bool:
        """Say whether room can be kept for no PodGroup with the shape of this one."""
        targets = self._targets_of_shape(row)
        is_large = self._session.attempts[row].amounts[_GPU] > self._most
        return targets is None or (is_large and not targets.planned_at)

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
        targets = self._targets(row, record) if record.nodes else self._targets_of_shape(row)
        if targets is None:
            return None
        end = (record.next_since or self._now) + record.turn_s(self._now)
        planned_at = targets.planned_at if targets.planned_at <= end else 0
        if not planned_at and session.attempts[row].amounts[_GPU] > self._most:
            return None
        return _Candidate(row, targets, planned_at)

    def _targets_of_shape(self, row: int) -> Targets | None:
        """Return where it could start if nothing is kept for it: alike for equal pods."""
        key, runs = self._shapes.key(row), self._session.attempts[row].signatures
        if key not in self._known:
            if runs not in self._nodes:
                self._nodes[runs] = targets_of(self._session, runs, self._room, ())
            self._known[key] = self._if_kept(row, self._nodes[runs])
        return self._known[key]

    def _targets(self, row: int, record: LineRecord) -> Targets | None:
        runs = self._session.attempts[row].signatures
        return self._if_kept(row, targets_of(self._session, runs, self._room, record.nodes))

    def _if_kept(self, row: int, targets: Targets | None) -> Targets | None:
        return targets if targets and _may_be_kept(self._session, row, targets) else None


class _Records:
    """The records of all PodGroups after the plan."""

    def __init__(self, session: Session, nodes: tuple[KeptNode, ...]) -> None:
        self._session: Final = session
        self._nodes: Final = nodes
        self._now: Final = session.snapshot.now
        self._back_off_s: Final = session.policies.line.back_off_s
        self._shapes: Final = _Shapes(session)
        self._changes: Final[dict[int, LineRecord | None]] = {}
        self._at: Final = [session.kept.plan.planned_at]  # when time alone changes something

    def changes(self) -> tuple[tuple[LineChange, ...], int | None]:
        session, lines = self._session, self._session.snapshot.lines
        steady, new = self._waiting()
        unsteady = lines.keys() - steady if len(steady) < len(lines) else ()
        is_bound = {it.podgroup: bool(it.binds) for it in session.allocations if unsteady}
        for row in unsteady:
            self._note(row, lines[row], self._after(row, lines[row], is_bound=is_bound.get(row)))
        for alike in new:
            self._begin(alike)
        rows = sorted(self._changes)
        changes = tuple(map(_new_change, zip(rows, map(self._changes.get, rows), strict=True)))
        return changes, min((at for at in self._at if at > self._now), default=None)

    def _waiting(self) -> tuple[list[int], list[_Alike]]:
        """Return which waiting PodGroups keep their records as they are, and which have no record.

        The loop is over all waiting PodGroups, so for most of them it calls no function.
        """
        session, now, soonest = self._session, self._now, _FAR
        podgroups, attempts, placed = session.snapshot.podgroups, session.attempts, session.placed
        lines, kept_row = session.snapshot.lines, session.kept.row
        after_s, alike = session.policies.line.eligible_after_s, dict[_Key, _Alike]()
        steady: list[int] = []
        for row, rejection in session.rejections.items():
            if rejection.reason not in _WAITS_FOR_CAPACITY or row in placed:
                continue
            podgroup, attempt = podgroups[row], attempts[row]
            key = podgroup.queue, podgroup.is_preemptible, id(attempt.request_key), attempt.amounts
            if key not in alike:
                alike[key] = self._shapes.find_request(row), []
            request, new = alike[key]
            record = lines.get(row)
            if record is None:
                new.append(row)
            elif (
                record.request == request != ""
                and not record.next_since
                and not record.paused_at
                and not podgroup.has_running
                and row != kept_row
            ):
                steady.append(row)
                at = record.since + record.paused_s + after_s
                if at <= now:
                    at = record.again_at
                if now < at < soonest:
                    soonest = at
        self._at.append(soonest if soonest < _FAR else 0)
        return steady, [*alike.values()]

    def _begin(self, alike: _Alike) -> None:
        """Begin the records of PodGroups without one; of equal requests it is the same."""
        session, (request, waiting) = self._session, alike
        rows = [row for row in waiting if _is_new(session, row)] if request else []
        if rows:
            record = LineRecord(self._now, request)
            self._changes.update(dict.fromkeys(rows, record))
            self._at.append(self._now + session.policies.line.eligible_after_s)

    def _note(self, row: int, before: LineRecord, after: LineRecord | None) -> None:
        if after is not before and after != before:
            self._changes[row] = after
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
