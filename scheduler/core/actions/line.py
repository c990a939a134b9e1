"""The line: which PodGroup is next in the cluster, and which room is kept for it.

A PodGroup of a queue that reserves, which has waited long enough and needs a whole node or more,
may become the next one. Room is kept as it is freed, on the nodes that are expected to complete it
soonest: by ends that are enforced, else as long again as PodGroups have run, for most that have run
for long run on for as long. How long and how much is bounded.
"""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.actions.strict_queues import could_start
from scheduler.core.gang import is_satisfied
from scheduler.core.model.line import LineChange, LineNote, LineRecord
from scheduler.core.model.podgroup import domain_constraints
from scheduler.core.model.rejections import Rejection
from scheduler.core.model.resources import NONE, Amounts, Bools, Floats, Ints, ResourceKind
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.model.snapshot import PodState, Snapshot
from scheduler.core.nodes.reserved_places import WantedRoom
from scheduler.core.nodes.strategies.strategy import EVERYWHERE
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason

_WAITS_FOR_CAPACITY: Final = frozenset(
    {
        UnschedulableReason.FRAGMENTED,
        UnschedulableReason.NO_CAPACITY,
        UnschedulableReason.PREEMPTION_DELAY,
    }
)
_GPU: Final = ResourceKind.GPU
_LEAST_RUN_S: Final = 600  # a PodGroup that has just begun runs for as long
_MOST_BACK_OFF_S: Final = 24 * 3600
_FAR: Final = np.inf


class _NodeRoom(NamedTuple):
    """What PodGroups may get on the nodes."""

    free: Ints  # [node, resource]
    without_pods: Ints  # [node, resource] if no pod of ours were there
    free_at: Floats  # [node] when the last of them ends by force; infinite is not known
    # [node] how long they may still run: until then, else together as long as they have run.
    wait_s: Floats


class _Target(NamedTuple):
    node: int
    request: Ints
    pods: int


class _Left(NamedTuple):
    """What is left of it beside the pods that have been thought of."""

    free: Ints
    without_pods: Ints
    before: Bools  # [node] room was kept there before

    def take(self, node: int, request: Ints, count: int) -> _Target:
        self.free[node] -= count * request
        self.without_pods[node] -= count * request
        return _Target(node, request, count)


def keep_room(session: Session) -> None:
    """Choose the next PodGroup and keep room for it; call it before others are attempted."""
    lines = session.snapshot.lines
    if not session.snapshot.queues.reserving or not lines:
        return
    eligible = [row for row in sorted(lines) if _is_eligible(session, row)]
    if not eligible:
        return
    room = _node_room(session)
    row = _next(session, eligible, room)
    if row == NONE:
        return
    targets, planned_at = _targets(session, row, room)
    kept = session.kept
    kept.planned_at = planned_at
    kept.free_at = {it.node: _time(room.free_at[it.node]) for it in targets}
    kept.keep(row, _within_bounds(session, row, targets, room, is_planned=planned_at > 0))


def line_changes(session: Session) -> tuple[LineChange, ...]:
    """Return the records that differ from those of the snapshot."""
    snapshot = session.snapshot
    if not snapshot.queues.reserving and not snapshot.lines:
        return ()
    placed = {it.podgroup: it for it in session.allocations}
    changes = []
    for row in sorted({*snapshot.lines, *_waiting(session)}):
        before = snapshot.lines.get(row)
        after = _record(session, row, before, placed.get(row))
        if after != before:
            changes.append(LineChange(row, after))
    return tuple(changes)


def line_note(session: Session) -> LineNote | None:
    """Return what is kept at the end of the plan."""
    kept = session.kept
    if not kept.is_held:
        return None
    record = session.snapshot.lines[kept.row]
    nodes = tuple([it._replace(free_at=kept.free_at.get(it.node, 0)) for it in kept.nodes])
    if not nodes:
        return None
    since = record.next_since or session.snapshot.now
    needed = session.attempts[kept.row].amounts[_GPU]
    return LineNote(kept.row, since, needed, nodes, kept.planned_at)


def with_line_note(rejection: Rejection, note: LineNote) -> Rejection:
    """Say what is kept to the PodGroup for which it is, and to those that wait for room."""
    if rejection.podgroup != note.podgroup and rejection.reason not in _WAITS_FOR_CAPACITY:
        return rejection
    return replace(rejection, line=note)


def next_line_event_at(session: Session, changes: tuple[LineChange, ...]) -> int | None:
    """Return when the line changes by time alone, in seconds since 1970; None if it does not."""
    lines = {**session.snapshot.lines, **{it.podgroup: it.record for it in changes}}
    now, settings = session.snapshot.now, session.policies.line
    times = []
    for row, record in lines.items():
        if record is None or row not in session.rejections:
            continue
        times += [record.since + settings.eligible_after_s, record.again_at]
        if record.gpus and not session.kept.planned_at:
            left = _budget(session, row, record) - record.used_at(now)
            times.append(now + max(1, left // record.gpus + 1))
    times.append(session.kept.planned_at)
    return min((at for at in times if at > now), default=None)


def _next(session: Session, eligible: list[int], room: _NodeRoom) -> int:
    """Return the PodGroup that is next, or NONE; one that is next stays so while it may."""
    lines = session.snapshot.lines
    for row in eligible:
        if lines[row].next_since:
            if not _gives_up(session, row, room):
                return row
            session.kept.gave_up.add(row)
    heads: dict[int, int] = {}
    for row in eligible:
        if row not in session.kept.gave_up:
            queue = session.snapshot.podgroups[row].queue
            best = heads.get(queue)
            if best is None or session.attempts[row].key < session.attempts[best].key:
                heads[queue] = row
    return min(heads.values(), key=lambda row: (lines[row].since, row), default=NONE)


def _gives_up(session: Session, row: int, room: _NodeRoom) -> bool:
    record, now = session.snapshot.lines[row], session.snapshot.now
    is_used_up = record.used_at(now) >= _budget(session, row, record)
    return is_used_up and not _targets(session, row, room)[1]


def _budget(session: Session, row: int, record: LineRecord) -> int:
    """Return the thousandths of GPUs times seconds that may be kept for a PodGroup in all."""
    waited = max(record.next_since - record.since, session.policies.line.eligible_after_s)
    return session.attempts[row].amounts[_GPU] * waited


def _is_eligible(session: Session, row: int) -> bool:
    record, now = session.snapshot.lines[row], session.snapshot.now
    return (
        row in session.attempts
        and now >= record.since + session.policies.line.eligible_after_s
        and now >= record.again_at
        and record.request == _request(session, row)
        and _may_reserve(session, row)
    )


def _may_reserve(session: Session, row: int) -> bool:
    """Say whether room may be kept for a PodGroup, however long it has waited."""
    snapshot, attempts = session.snapshot, session.attempts
    podgroup, attempt = snapshot.podgroups[row], attempts[row]
    return (
        podgroup.queue in snapshot.queues.reserving
        and podgroup.can_reserve
        and not podgroup.has_running
        and not attempts.has_reserved_places(row)
        and not is_satisfied(podgroup.tree, attempts.assigned(row))
        and attempt.strategy is EVERYWHERE
        and not any(session.nodes.devices.of[it] for it, _ in attempt.signatures)
        and could_start(session, row)
        and attempt.amounts[_GPU] >= _smallest_node(session, row)
        and _is_within_shares(session, podgroup.queue, attempt.amounts)
    )


def _smallest_node(session: Session, row: int) -> int:
    """Return the GPUs of the smallest node with GPUs that its pods fit on when it is empty."""
    snapshot = session.snapshot
    gpus = snapshot.nodes.allocatable[:, list(snapshot.resources.gpus)].sum(axis=1)
    fits = np.zeros(len(gpus), dtype=np.bool_)
    for signature, _ in session.attempts[row].signatures:
        fits |= session.placer.ranking(signature).fits_empty
    found = gpus[fits & (gpus > 0)]
    return int(found.min()) if len(found) else 2**60


def _is_within_shares(
    session: Session, queue: int, amounts: Amounts, *, beside: bool = False
) -> bool:
    """Say whether amounts are within the share on every level, *beside* what is allocated."""
    usage, share = session.usage, session.queue_order.share
    return all(
        amount + (has if beside else 0) <= most
        for q in usage.paths[queue]
        for amount, has, most in zip(amounts, usage.allocated[q], share(q), strict=True)
        if amount
    )


def _request(session: Session, row: int) -> str:
    """Describe what a PodGroup requests by names, for later plans."""
    snapshot, attempt = session.snapshot, session.attempts[row]
    podgroup = snapshot.podgroups[row]
    pods = sum([len(it.pods) + it.expected for it in attempt.tasks])
    gpus = attempt.amounts[_GPU]
    domains = [
        f" {snapshot.topologies[it.topology].name}/{it.required}/{it.preferred}"
        for it in domain_constraints(podgroup.tree)
    ]
    return f"{snapshot.queues.names[podgroup.queue]} {pods} {gpus}{''.join(domains)}"


def _waiting(session: Session) -> list[int]:
    """Return the PodGroups that wait for room and could have it kept."""
    reserving = session.snapshot.queues.reserving
    if not reserving:
        return []
    snapshot, attempts = session.snapshot, session.attempts
    gpus = snapshot.nodes.allocatable[:, list(snapshot.resources.gpus)].sum(axis=1)
    least = int(gpus[gpus > 0].min(initial=2**60))
    return [
        row
        for row, rejection in session.rejections.items()
        if snapshot.podgroups[row].queue in reserving
        and rejection.reason in _WAITS_FOR_CAPACITY
        and row in attempts
        and attempts[row].amounts[_GPU] >= least
        and _may_reserve(session, row)
    ]


def _record(
    session: Session, row: int, before: LineRecord | None, placed: PodGroupAllocation | None
) -> LineRecord | None:
    """Return the record of a PodGroup after the plan."""
    now, kept = session.snapshot.now, session.kept
    rejection = session.rejections.get(row)
    if placed is not None:  # a nominated one that loses its room again has not waited in between
        return None if placed.binds else _not_next(before, now)
    if (
        rejection is None
        or rejection.reason not in _WAITS_FOR_CAPACITY
        or row not in session.attempts
        or not _may_reserve(session, row)
    ):
        return None
    request = _request(session, row)
    if before is None or before.request != request:
        return LineRecord(now, request)
    if row in kept.gave_up:
        back_off_s = session.policies.line.back_off_s * 2**before.tries
        again_at = now + min(back_off_s, _MOST_BACK_OFF_S)
        after = _not_next(before, now)
        return after and after._replace(tries=before.tries + 1, again_at=again_at)
    if row != kept.row:
        return _not_next(before, now)
    nodes = tuple([it.node for it in kept.nodes])
    gpus = sum([it.gpus for it in kept.nodes])
    if before.next_since and (before.nodes, before.gpus) == (nodes, gpus):
        return before
    return before._replace(
        next_since=before.next_since or now,
        nodes=nodes,
        gpus=gpus,
        at=now,
        used=before.used_at(now),
    )


def _not_next(record: LineRecord | None, now: int) -> LineRecord | None:
    if record is None or not record.next_since:
        return record
    return record._replace(next_since=0, nodes=(), gpus=0, at=0, used=record.used_at(now))


def _node_room(session: Session) -> _NodeRoom:
    """Return what is free, what would be without our pods, and when their ends are enforced."""
    snapshot, pods = session.snapshot, session.snapshot.pods
    is_there = (pods.node != NONE) & (pods.podgroup != NONE)
    is_there &= np.isin(pods.state, (PodState.RUNNING, PodState.STUCK_RELEASING))
    rows = np.flatnonzero(is_there)
    requests = np.array([it.request for it in snapshot.signatures], dtype=np.int64)
    free = session.nodes.resources.free.copy()
    without_pods = free.copy()
    free_at, wait_s = np.zeros(len(free)), np.zeros(len(free))
    if len(rows):
        np.add.at(without_pods, pods.node[rows], requests[pods.signature[rows]])
        found, inverse = np.unique(pods.podgroup[rows], return_inverse=True)
        ends = np.array([_end(snapshot, it) for it in found.tolist()])
        np.maximum.at(free_at, pods.node[rows], ends[inverse])
        ran_s = np.array([_ran_s(snapshot, it) for it in found.tolist()])
        node, one = np.divmod(
            np.unique(pods.node[rows].astype(np.int64) * len(found) + inverse), len(found)
        )
        np.add.at(wait_s, node, ran_s[one])
        wait_s = np.where(free_at < _FAR, free_at - snapshot.now, wait_s)
    return _NodeRoom(free, without_pods, free_at, wait_s)


def _ran_s(snapshot: Snapshot, row: int) -> float:
    """Return how long a PodGroup has run: most that have run for long run on for as long."""
    since = snapshot.podgroups[row].running_since
    return float(max(snapshot.now - since, _LEAST_RUN_S)) if since else float(_LEAST_RUN_S)


def _end(snapshot: Snapshot, row: int) -> float:
    ends_at = snapshot.podgroups[row].ends_at
    return float(ends_at) if ends_at > snapshot.now else _FAR


def _time(at: float) -> int:
    return 0 if at == _FAR else int(at)


def _targets(session: Session, row: int, room: _NodeRoom) -> tuple[list[_Target], int]:
    """Return on which nodes the pods of a PodGroup are to start, and when if that is known.

    First where they fit now, then on the nodes that are expected to be free soonest.
    """
    targets, free_at = _chosen(session, row, room)
    return targets, int(free_at) if 0 < free_at < _FAR else 0


def _chosen(session: Session, row: int, room: _NodeRoom) -> tuple[list[_Target], float]:
    snapshot, free_at = session.snapshot, 0.0
    before = np.zeros(len(room.free), dtype=np.bool_)
    left = _Left(room.free.copy(), room.without_pods.copy(), before)
    left.before[[it for it in snapshot.lines[row].nodes if it != NONE]] = True
    runs = sorted(
        session.attempts[row].signatures,
        key=lambda it: -snapshot.signatures[it[0]].queue_request[_GPU],
    )
    targets: list[_Target] = []
    for signature, count in runs:
        request = np.array(snapshot.signatures[signature].request, dtype=np.int64)
        is_open = session.placer.ranking(signature).fits_empty
        now = _that_fit_now(left, request, is_open, count)
        targets += now
        for _ in range(count - sum([it.pods for it in now])):
            node, at = _one_later(room, left, request, is_open)
            if node == NONE:
                return targets, _FAR
            targets.append(left.take(node, request, 1))
            free_at = max(free_at, at)
    return targets, free_at


def _that_fit_now(left: _Left, request: Ints, is_open: Bools, count: int) -> list[_Target]:
    """Choose nodes for pods that fit: those chosen before first, then those with the least left."""
    columns = np.flatnonzero(request)
    each = (left.free[:, columns] // request[columns]).min(axis=1).clip(min=0)
    fitting = np.where(is_open, each, 0)
    rest = left.free[:, columns[-1]] - fitting * request[columns[-1]]
    found: list[_Target] = []
    for node in np.lexsort((rest, ~left.before)).tolist():
        taken = min(count, int(fitting[node]))
        if taken > 0:
            found.append(left.take(node, request, taken))
            count -= taken
        if not count:
            break
    return found


def _one_later(room: _NodeRoom, left: _Left, request: Ints, is_open: Bools) -> tuple[int, float]:
    """Return the node on which one more pod fits soonest, and when; NONE if it fits on none."""
    columns = np.flatnonzero(request)
    needed = request[columns]
    fits = is_open & (left.without_pods[:, columns] >= needed).all(axis=1)
    if not fits.any():
        return NONE, _FAR
    nodes = np.flatnonzero(fits)
    wait_s = np.where(left.before, room.wait_s / 2, room.wait_s)[nodes]
    missing = (needed - left.free[nodes][:, columns].clip(min=0)).clip(min=0) / needed
    order = np.lexsort((missing.max(axis=1), wait_s))
    node = int(nodes[order[0]])
    return node, float(room.free_at[node])


def _within_bounds(
    session: Session, row: int, targets: list[_Target], room: _NodeRoom, *, is_planned: bool
) -> list[WantedRoom]:
    """Return what may be kept: within the cap, unless ends are enforced, and within the shares.

    The last node that a PodGroup needs comes on top of the cap. Otherwise small pods would keep it
    from getting free for ever.
    """
    snapshot, queue = session.snapshot, session.snapshot.podgroups[row].queue
    gpus = list(snapshot.resources.gpus)
    most, largest = _cap(session), _largest_node(snapshot)
    needed = session.attempts[row].amounts[_GPU]
    left, wanted, amounts = room.free.copy(), dict[int, Ints](), [0, 0, 0]
    for node, request, count in targets:
        kept = np.minimum(count * request, left[node].clip(min=0))
        charged = _charged(snapshot, kept)
        total = [a + b for a, b in zip(amounts, charged, strict=True)]
        if not kept[gpus].any() and request[gpus].any():
            continue  # nothing is there yet
        is_last_node = amounts[_GPU] >= needed - largest
        if not (is_planned or total[_GPU] <= most or is_last_node):
            continue
        if not _is_within_shares(session, queue, (total[0], total[1], total[2]), beside=True):
            continue
        left[node] -= kept
        amounts = total
        wanted[node] = wanted.get(node, 0) + kept
    return [WantedRoom(node, kept) for node, kept in wanted.items()]


def _cap(session: Session) -> int:
    snapshot = session.snapshot
    part = snapshot.total[_GPU] * session.policies.line.max_kept_percent // 100
    return max(part, _largest_node(snapshot))


def _largest_node(snapshot: Snapshot) -> int:
    gpus = snapshot.nodes.allocatable[:, list(snapshot.resources.gpus)].sum(axis=1)
    return int(gpus.max(initial=0))


def _charged(snapshot: Snapshot, amounts: Ints) -> list[int]:
    resources, sums = snapshot.resources, [0, 0, 0]
    for kind, weight, amount in zip(
        resources.kinds, resources.weights, amounts.tolist(), strict=True
    ):
        if kind != NONE:
            sums[kind] += weight * amount
    return sums
