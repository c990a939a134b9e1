"""The action allocate: pending PodGroups are placed on free resources.

PodGroups are attempted in rounds. One that fails is attempted again after the others, until a
round passes without an allocation: then nothing has changed since any attempt, and all reasons
are true of the end.
"""

from collections.abc import Iterator

from scheduler.core.actions.line import keep_room
from scheduler.core.actions.strict_queues import StrictQueues
from scheduler.core.attempts import elastic_failure, missing_pods
from scheduler.core.gang import (
    SignatureRuns,
    Tasks,
    has_expected,
    has_pending,
    is_satisfied,
    pending_after,
    tasks_to_allocate,
)
from scheduler.core.model.podgroup import PodGroupInfo, PodSet
from scheduler.core.model.rejections import prefilter_rejection
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason


def allocate(session: Session) -> None:
    """In the first round what is nominated is reserved; after it more may be free."""
    rows = list(_attemptable(session))
    _reserve_nominated(session, rows)
    keep_room(session)
    is_last = not session.nominated_capacity
    while rows:
        before = len(session.allocations)
        rows = _attempt_each(session, rows)
        if is_last and len(session.allocations) == before:
            return
        is_last = True


def _attemptable(session: Session) -> Iterator[int]:
    """Yield the pending PodGroups that can be attempted; reject the others."""
    for row, podgroup in enumerate(session.snapshot.podgroups):
        if row in session.evicted or not _is_pending(podgroup):
            continue
        tasks = tasks_to_allocate(podgroup.tree)
        failure = podgroup.prefilter_failure or elastic_failure(podgroup, tasks)
        if failure is not None and (
            tasks or failure.reason.rank < UnschedulableReason.PODS_MISSING.rank
        ):
            session.rejections[row] = prefilter_rejection(row, failure)
        elif not tasks or _is_only_reserving(podgroup, tasks):
            session.rejections[row] = missing_pods(row, podgroup)
        else:
            session.attempts.add(row, tasks)
            yield row


def _attempt_each(session: Session, rows: list[int]) -> list[int]:
    """Attempt each PodGroup, and again while it is placed; return the PodGroups that failed."""
    failed = []
    first = len(session.allocations)
    nominated = session.nominated_podgroups
    strict_queues = StrictQueues(session) if session.snapshot.queues.strict else None
    jobs_order = session.jobs_order(rows, nominated.rank if _add_nominated(session, rows) else None)
    while (row := jobs_order.pop()) is not None:
        nominated.attempted(row)
        is_final = len(session.allocations) == first
        if strict_queues is not None and strict_queues.has(row):
            if not strict_queues.place(row):
                failed.append(row)
                continue
        elif not session.place(row, is_final=is_final):
            failed.append(row)
            continue
        if session.next_attempt(row):
            _add_nominated(session, [row])
            _reserve_nominated(session, [row])
            jobs_order.push(session.attempts[row].key)
    return failed


def _add_nominated(session: Session, rows: list[int]) -> bool:
    nominated = session.nominated_podgroups
    return bool(nominated) and nominated.add_pending(
        row for row in rows if nominated.all_nominated(session.attempts[row].tasks)
    )


def _reserve_nominated(session: Session, rows: list[int]) -> None:
    nominated, attempts = session.nominated_podgroups, session.attempts
    if nominated:
        session.nominated_capacity.reserve(
            (row, [attempts[row].signatures, *_later_nominations(session, row)])
            for row in rows
            if nominated.all_nominated(attempts[row].tasks)
            and not attempts.has_reserved_places(row)
        )


def _later_nominations(session: Session, row: int) -> Iterator[SignatureRuns]:
    """Yield the signatures of nominated pods of a PodGroup beyond its next tasks."""
    tree, tasks = session.snapshot.podgroups[row].tree, session.attempts[row].tasks
    for pod in pending_after(tree, tasks, session.attempts.assigned(row)):
        signature = int(session.snapshot.pods.signature[pod])
        if session.nominated_podgroups.is_nominated(signature):
            yield ((signature, 1),)


def _is_only_reserving(podgroup: PodGroupInfo, tasks: Tasks) -> bool:
    return not podgroup.has_running and not any(podset_tasks.pods for podset_tasks in tasks)


def _is_pending(podgroup: PodGroupInfo) -> bool:
    """Say whether a PodGroup has pending pods, or runs and lacks reserved places."""
    tree = podgroup.tree
    if isinstance(tree, PodSet) and not tree.pending and not tree.expected:
        return False  # true of most, in some clusters of all
    if has_pending(tree):
        return True
    if (
        not podgroup.has_running
        or podgroup.prefilter_failure is not None
        or not has_expected(podgroup.tree)
    ):
        return False  # without pending or expected pods no place is missing
    return bool(tasks_to_allocate(podgroup.tree)) and not is_satisfied(podgroup.tree)
