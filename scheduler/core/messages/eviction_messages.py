"""Messages about evictions: why a victim is evicted, what is awaited, and why none was found."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from scheduler.core.messages.amounts import KIND_NAMES, at_least, timestamp
from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.rejections import (
    ConsolidationFailure,
    EarlierIneligibility,
    EarlierPodGroup,
    EvictionFailure,
    QueueOrderConflict,
    ReclaimShortfall,
    Rejection,
)
from scheduler.core.model.resources import NONE, RESOURCE_KINDS
from scheduler.core.model.result import Eviction
from scheduler.core.model.snapshot import Snapshot, SnapshotQueues
from trainer_kai.api.scheduler_names import Action
from trainer_kai.api.text import counted, first_listed, listed_names, noun_form, verb_form

_MAX_NAMES: Final = 3  # of victims or budgets
_WORK_UNITS: Final = ((3600, "GPU-hour"), (60, "GPU-minute"))  # used from two of them
_MAX_QUEUES: Final = 3  # with a sentence each
_INELIGIBLE: Final = {
    EarlierIneligibility.QUOTA: "a quota of its queues does not allow it",
    EarlierIneligibility.SHARE: "its queue would exceed its fair share",
}
_SHORTFALLS: Final = {
    ReclaimShortfall.NO_QUEUE_OVER_SHARE: (
        "Nothing can be reclaimed: no other queue is over its fair share"
    ),
    ReclaimShortfall.TOO_LITTLE: "{}, but what can be reclaimed is not enough",
    ReclaimShortfall.UNFAIR: (
        "{}, but reclaiming enough would leave the queue that loses resources no better off than "
        "the queue that gets them"
    ),
}
# Why a queue is ahead of another one, by the index of the first part of their keys that differs.
_ORDER_CONFLICTS: Final = (
    "queue {other} is over its fair share of every resource",
    "queue {queue} would stay within its quota",
    "queue {queue} has the higher priority ({priority}, queue {other} has {other_priority})",
    "queue {other} has no fair share of a resource that it uses or would use",
    "queue {queue} would then use a smaller part of its fair share",
    "queue {queue} uses a smaller part of its fair share",
    "both use equal parts of their fair share, and queue {queue} uses less or is older",
)
_CONSOLIDATION_FAILURES: Final = {
    ConsolidationFailure.DISABLED: "the action consolidation is disabled",
    ConsolidationFailure.NO_CANDIDATES: "only preemptible TrainJobs that Kueue does not manage can"
    ' be relocated, in queues with the annotation trainer-kai.dev/consolidation: "on"',
    ConsolidationFailure.NOT_PREEMPTIBLE: "the pending PodGroup is non-preemptible",
    ConsolidationFailure.NO_SOLUTION: "no set of relocations was found that frees enough",
}
_Why: TypeAlias = Callable[[SnapshotQueues, PodGroupInfo, PodGroupInfo], str]


def eviction_message(snapshot: Snapshot, one: Eviction) -> str:
    notes = *_budget_notes(snapshot, one.budgets), _lost_work_note(snapshot, one), one.victim_order
    more = "".join(f"; {it}" for it in notes if it)
    if one.action is Action.QUEUE_DRAIN:
        queue = snapshot.queues.names[snapshot.podgroups[one.podgroups[0]].queue]
        return f"queue {queue} is drained (trainer-kai.dev/stop-policy: HoldAndDrain){more}"
    if one.action is Action.NODE_LEAVING:
        departures = (snapshot.podgroups[row].departure for row in one.podgroups)
        return f"{next(it.reason for it in departures if it is not None)}{more}"
    if one.preemptor == NONE:
        return f"the PodGroup had fewer pods than its minimum for too long{more}"
    preemptor, victim = snapshot.podgroups[one.preemptor], snapshot.podgroups[one.podgroups[0]]
    why = _REASONS[one.action](snapshot.queues, victim, preemptor)
    return f"{preemptor.name} gets its resources: {why}{more}"


def nominated_message(pods: int, nodes: int, victims: Iterable[str]) -> str:
    are = f"{counted(pods, 'pod')} {verb_form(pods, 'are')} nominated to {counted(nodes, 'node')}"
    titles = listed_names(sorted({*victims}), _MAX_NAMES)
    begin = f"{are}, where evicted pods are terminating{titles and f': {titles}'}"
    return f"{begin}. It starts when the evicted pods have terminated"


def _budget_notes(snapshot: Snapshot, rows: Sequence[int]) -> Iterator[str]:
    budgets = snapshot.budgets
    for row in rows[:_MAX_NAMES]:
        yield f"PodDisruptionBudget {budgets.names[row]} allows only {budgets.allowed[row]}"
    if rows[_MAX_NAMES:]:
        yield f"and {len(rows) - _MAX_NAMES} more PodDisruptionBudgets"


def _lost_work_note(snapshot: Snapshot, one: Eviction) -> str:
    """Name the largest unit of time of which it is at least two."""
    if not one.work_lost:
        return ""
    seconds, name = next(
        (it for it in _WORK_UNITS if one.work_lost >= 2 * it[0]), (1, "GPU-second")
    )
    count = f"{one.work_lost / seconds:.1f}".removesuffix(".0")
    podgroups = [snapshot.podgroups[row] for row in one.podgroups]
    is_saved = all(podgroup.checkpoint_at >= podgroup.running_since for podgroup in podgroups)
    start = "its last checkpoint" if is_saved else "its start"
    amount = f"{count} {noun_form(float(count), name)}"
    return f"{amount} since {start} {verb_form(float(count), 'are')} lost"


def _reclaimed(queues: SnapshotQueues, victim: PodGroupInfo, preemptor: PodGroupInfo) -> str:
    over, below = queues.names[victim.queue], queues.names[preemptor.queue]
    return f"queue {over} was over its fair share, and queue {below} below its fair share"


def _preempted(_queues: SnapshotQueues, victim: PodGroupInfo, preemptor: PodGroupInfo) -> str:
    return f"its priority is {preemptor.priority}, that of {victim.name} is {victim.priority}"


def _consolidated(_queues: SnapshotQueues, victim: PodGroupInfo, _preemptor: PodGroupInfo) -> str:
    return f"{victim.name} is relocated, and resources elsewhere are reserved for it"


_REASONS: Final[Mapping[Action, _Why]] = MappingProxyType(
    {Action.RECLAIM: _reclaimed, Action.PREEMPT: _preempted, Action.CONSOLIDATION: _consolidated}
)


def eviction_failure_sentences(snapshot: Snapshot, rejection: Rejection) -> Iterator[str]:
    failure = rejection.eviction_failure
    if failure.non_evictable:
        yield _non_evictable(failure.non_evictable)
    if failure.protected:
        number = failure.protected
        are = f"{counted(number, 'PodGroup')} {verb_form(number, 'are')}"
        name = snapshot.podgroups[failure.first_unprotected].name
        until = timestamp(failure.protected_until)
        yield f"{are} within the minimum runtime; {name} can be evicted from {until} on"
    if failure.budgets:
        names = first_listed(snapshot.budgets.names[it] for it in failure.budgets)
        yield f"PodDisruptionBudget {names} allows too few evictions"
    for queue in failure.quota_only_queues[:_MAX_QUEUES]:
        name = snapshot.queues.names[queue]
        goal = f"the reclaim-goal of queue {name} is quota-only"
        yield f"Below queue {name} nothing is reclaimed beyond quotas: {goal}"
    for queue, kind in failure.unlimited_queues[:_MAX_QUEUES]:
        name, resource = snapshot.queues.names[queue], KIND_NAMES[kind]
        field = f"spec.resources.{resource.lower()}.quota"
        yield (
            f"Queue {name} cannot be reclaimed from: its {resource} quota is unlimited (-1). Lower "
            f"{field} of that queue, to 0 if it owns none"
        )
    yield from _shortfall_sentences(snapshot, failure)
    if failure.is_truncated:
        yield "The search for victims ended at a limit: not all PodGroups were considered"
    if failure.is_rate_limited:
        yield (
            "Evictions are rate-limited: the limit of one minute is reached, so no pod is evicted "
            "for this PodGroup for now"
        )
    if failure.is_delayed:
        podgroup = snapshot.podgroups[rejection.podgroup]
        words = f" of {podgroup.preemption_delay}" if podgroup.preemption_delay else ""
        until = timestamp(podgroup.preemption_delay_until)
        yield f"No pod is evicted for it before {until}, when its preemption delay{words} ends"


def _non_evictable(reasons: Sequence[tuple[str, int]]) -> str:
    total = sum(count for _, count in reasons)
    subject = f"{counted(total, 'PodGroup')} cannot be evicted"
    if not reasons[1:]:
        return f"{subject} because {reasons[0][0]}"
    return f"{subject}: " + first_listed(
        (f"{count} because {why}" for why, count in reasons), between="; "
    )


def _shortfall_sentences(snapshot: Snapshot, failure: EvictionFailure) -> Iterator[str]:
    if failure.shortfall is not None:
        yield _SHORTFALLS[failure.shortfall].format(
            _over_share(snapshot, failure.over_share_queues)
        )
    if failure.order_conflict is not None:
        yield _order_conflict(snapshot, failure.order_conflict)
    if failure.consolidation_failure is not None:
        yield (
            "No PodGroup is relocated to free enough on one node: "
            f"{_CONSOLIDATION_FAILURES[failure.consolidation_failure]}"
        )


def _order_conflict(snapshot: Snapshot, order_conflict: QueueOrderConflict) -> str:
    names, priority = snapshot.queues.names, snapshot.queues.priority
    queue, other, key_index = order_conflict
    why = _ORDER_CONFLICTS[min(key_index, len(_ORDER_CONFLICTS) - 1)].format(
        queue=names[queue],
        other=names[other],
        priority=priority[queue],
        other_priority=priority[other],
    )
    ahead = f"it would be ahead of queue {names[other]} again"
    return f"Nothing is reclaimed from queue {names[queue]}, because {ahead}: {why}"


def _over_share(snapshot: Snapshot, queues: Sequence[int]) -> str:
    listed = first_listed(snapshot.queues.names[it] for it in queues)
    if len(queues) == 1:
        return f"Queue {listed} is over its fair share"
    return f"Queues {listed} are over their fair shares"


def earlier_podgroup_message(snapshot: Snapshot, earlier_podgroup: EarlierPodGroup) -> str:
    amounts = zip(RESOURCE_KINDS, earlier_podgroup.requested, strict=True)
    needs = ", ".join(at_least(kind, number) for kind, number in amounts if number > 0)
    name = snapshot.podgroups[earlier_podgroup.podgroup].name
    ahead = f"{name}, which requests {needs}, is ahead of it for resources that can be reclaimed"
    if earlier_podgroup.ineligibility is None:
        return ahead
    turn = "It is next when that PodGroup starts, requests less or is deleted"
    return f"{ahead}, and cannot get them: {_INELIGIBLE[earlier_podgroup.ineligibility]}. {turn}"
