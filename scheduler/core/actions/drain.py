"""Drained queues lose all their pods: an administrator has held them with HoldAndDrain.

It is no action that a site can switch off, and comes last: what it frees is there for the next
plan. What is evicted waits in the queue until that is released.
"""

from scheduler.core.actions.stale_gang import evict_whole
from scheduler.core.session import Session
from trainer_kai.api.scheduler_names import Action


def drain_queues(session: Session) -> None:
    """Evict what runs in drained queues, each PodGroup with all of its workload.

    Preemptibility, budgets and the limit of GPUs do not hold: the eviction was asked for.
    """
    drained = session.snapshot.queues.drained
    if not drained:
        return
    podgroups = session.snapshot.podgroups
    rows = [row for row, it in enumerate(podgroups) if it.queue in drained and it.has_running]
    evict_whole(session, rows, Action.QUEUE_DRAIN)
