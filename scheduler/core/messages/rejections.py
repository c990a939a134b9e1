"""Messages: why a PodGroup waits, in sentences with numbers, and what would change it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import (
    ConsolidationFailure,
    EarlierIneligibility,
    EarlierPodGroup,
    EvictionFailure,
    FitErrorReason,
    FitErrors,
    IncompletePodSet,
    MissingPods,
    QueueBoundExceeded,
    QueueOrderConflict,
    ReclaimShortfall,
    Rejection,
    UnschedulableReason,
)
from scheduler.core.model.resources import NONE, RESOURCE_KINDS, ResourceColumns, ResourceKind
from scheduler.core.model.snapshot import Snapshot

__all__ = [
    "MAX_QUEUE_REQUEST",
    "MAX_REQUEST",
    "eviction_failure_sentences",
    "kai_condition",
    "rejection_message",
]

N = TypeVar("N", int, str)
_MAX_REASONS: Final = 3  # of reasons and budgets
_MAX_REMEDIES: Final = 2  # changes that are named
_MAX_LISTED: Final = 3  # of bounds, taints, labels and resources
MAX_REQUEST: Final = 2**50  # what a pod requests is cut at this
MAX_QUEUE_REQUEST: Final = 2**45  # and for its queue at this
_MIB: Final = 2**20
_GIB: Final = 2**30
_LAST_SECOND: Final = 253_402_300_799  # the last second that a date has a name for
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
_KIND_NAMES: Final = {
    ResourceKind.CPU: "CPU",
    ResourceKind.MEMORY: "memory",
    ResourceKind.GPU: "GPU",
}
_FIT_ERRORS: Final = {
    FitErrorReason.CORDONED: ("is cordoned", "are cordoned"),
    FitErrorReason.NOT_READY: ("is not ready", "are not ready"),
    FitErrorReason.PRESSURE: ("is under pressure", "are under pressure"),
    FitErrorReason.NO_NETWORK: ("has no network", "have no network"),
    FitErrorReason.TAINT: (
        "has a taint that it does not tolerate",
        "have taints it does not tolerate",
    ),
    FitErrorReason.SELECTOR: ("does not match what it selects", "do not match what it selects"),
    FitErrorReason.TOO_SMALL: ("is too small even when empty", "are too small even when empty"),
    FitErrorReason.CLAIM: (
        "cannot give it a claim that is in use",
        "cannot give it a claim that is in use",
    ),
    FitErrorReason.PORT: ("has its host port in use", "have its host port in use"),
    FitErrorReason.AFFINITY: ("is not near the pods it wants", "are not near the pods it wants"),
    FitErrorReason.ANTI_AFFINITY: ("is near pods it must avoid", "are near pods it must avoid"),
    FitErrorReason.SPREAD: ("would make its spread uneven", "would make its spread uneven"),
}
_REMEDIES: Final = {
    FitErrorReason.CORDONED: "a node is uncordoned",
    FitErrorReason.NOT_READY: "a node becomes ready",
    FitErrorReason.PRESSURE: "the pressure on a node ends",
    FitErrorReason.NO_NETWORK: "a node gets its network",
    FitErrorReason.TAINT: "it tolerates the taints of a node",
    FitErrorReason.SELECTOR: "it selects other nodes",
    FitErrorReason.TOO_SMALL: "it asks for less",
    FitErrorReason.CLAIM: "the claim is free",
    FitErrorReason.PORT: "the host port is free",
    FitErrorReason.AFFINITY: "the pods it wants are there",
    FitErrorReason.ANTI_AFFINITY: "the pods it must avoid are gone",
    FitErrorReason.SPREAD: "other pods make its spread even",
}
_INELIGIBLE: Final = {
    EarlierIneligibility.QUOTA: "a quota of its queues has no room for it",
    EarlierIneligibility.SHARE: "its queue would have more than its fair share",
}
_SHORTFALLS: Final = {
    ReclaimShortfall.NO_QUEUE_OVER_SHARE: (
        "It can take nothing back: no queue beside it has more than it may count on"
    ),
    ReclaimShortfall.TOO_LITTLE: "{}, but giving back no more than that would not make the room",
    ReclaimShortfall.UNFAIR: (
        "{}, but who gave the room would be no better off then than who claims it"
    ),
}
# Why a queue comes before another one, by the index of the first part of their keys that differs.
_ORDER_CONFLICTS: Final = (
    "the other one has more than its fair share of everything",
    "it would stay within its quota",
    "its priority is larger, {} against {}",
    "nothing is due to the other one of something that it has or would have",
    "it would have the smaller part of what is due to it",
    "it has the smaller part of what is due to it",
    "their parts are alike, and it is smaller or older",
)
_CONSOLIDATION_FAILURES: Final = {
    ConsolidationFailure.DISABLED: "the action consolidation is off",
    ConsolidationFailure.NO_CANDIDATES: "only preemptible TrainJobs that nobody else admits are,"
    ' of a queue that offers it (trainer-kai.dev/consolidation: "on")',
    ConsolidationFailure.NOT_PREEMPTIBLE: "that is done only for who is preemptible",
    ConsolidationFailure.NO_SOLUTION: "no way was found with those who may be",
}


def eviction_failure_sentences(snapshot: Snapshot, rejection: Rejection) -> Iterator[str]:
    """Yield why no victims were evicted, as far as that is known."""
    failure = rejection.eviction_failure
    if failure.non_evictable:
        more = ", …" if failure.non_evictable[_MAX_REASONS:] else ""
        listed = "; ".join(
            f"{count} because {why}" for why, count in failure.non_evictable[:_MAX_REASONS]
        )
        yield f"Others stay: {listed}{more}"
    if failure.protected:
        have = "1 has" if failure.protected == 1 else f"{failure.protected} have"
        name = snapshot.podgroups[failure.first_unprotected].name
        yield (
            f"{have} not run for long enough: {name} may go from "
            f"{_timestamp(failure.protected_until)} on"
        )
    if failure.budgets:
        names = [snapshot.budgets.names[it] for it in failure.budgets]
        more = ", …" if names[_MAX_REASONS:] else ""
        yield f"Too few pods may go by PodDisruptionBudget {', '.join(names[:_MAX_REASONS])}{more}"
    for queue in failure.quota_only_queues[:_MAX_REASONS]:
        name = snapshot.queues.names[queue]
        goal = "its reclaim-goal is quota-only"
        yield f"Below queue {name} nothing is taken back beyond quotas: {goal}"
    for queue in failure.unlimited_queues[:_MAX_REASONS]:
        name = snapshot.queues.names[queue]
        yield f"Queue {name} owes nothing back: its quota has no bound"
    yield from _shortfall_sentences(snapshot, failure)
    if failure.is_truncated:
        yield "Not all that others could give back was looked at: that ended at a limit"
    if failure.is_rate_limited:
        yield "Nobody claims anything for now: enough was taken from others within a minute"
    if failure.is_delayed:
        podgroup = snapshot.podgroups[rejection.podgroup]
        words = f" of {podgroup.preemption_delay}" if podgroup.preemption_delay else ""
        until = _timestamp(podgroup.preemption_delay_until)
        when = f"before {until}, when its preemptionDelay{words} is over"
        yield f"It takes nothing from others {when}"


def _shortfall_sentences(snapshot: Snapshot, failure: EvictionFailure) -> Iterator[str]:
    if failure.shortfall is not None:
        yield _SHORTFALLS[failure.shortfall].format(
            _over_share(snapshot, failure.over_share_queues)
        )
    if failure.order_conflict is not None:
        yield _order_conflict(snapshot, failure.order_conflict)
    if failure.consolidation_failure is not None:
        yield (
            "Nobody is moved to bring it together: "
            f"{_CONSOLIDATION_FAILURES[failure.consolidation_failure]}"
        )


def _order_conflict(snapshot: Snapshot, order_conflict: QueueOrderConflict) -> str:
    names, priority = snapshot.queues.names, snapshot.queues.priority
    queue, before, key_index = order_conflict
    why = _ORDER_CONFLICTS[min(key_index, len(_ORDER_CONFLICTS) - 1)].format(
        priority[queue], priority[before]
    )
    nothing_taken = (
        f"Nothing is taken from queue {names[queue]}, for its turn would come again before that of"
    )
    return f"{nothing_taken} queue {names[before]}: {why}"


def _over_share(snapshot: Snapshot, queues: Sequence[int]) -> str:
    names = [snapshot.queues.names[it] for it in queues]
    listed = ", ".join(names[:_MAX_REASONS]) + (", …" if names[_MAX_REASONS:] else "")
    one, many = f"Queue {listed} has more than it", f"Queues {listed} have more than they"
    return f"{one if len(names) == 1 else many} may count on"


def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rejection_message(snapshot: Snapshot, rejection: Rejection) -> str:
    """Return the reason, and the sentences on why no victims were evicted."""
    sentences = [_details(snapshot, rejection), *eviction_failure_sentences(snapshot, rejection)]
    if rejection.eviction_failure.earlier_podgroup is not None:
        sentences.append(_earlier_podgroup(snapshot, rejection.eviction_failure.earlier_podgroup))
    return ". ".join(sentences)


def _earlier_podgroup(snapshot: Snapshot, earlier_podgroup: EarlierPodGroup) -> str:
    name, amounts = (
        snapshot.podgroups[earlier_podgroup.podgroup].name,
        zip(RESOURCE_KINDS, earlier_podgroup.requested, strict=True),
    )
    needs = _listed(_at_least(kind, number) for kind, number in amounts if number > 0)
    is_first = f"What others may have to give back is first for {name}, which asks for {needs}"
    if earlier_podgroup.ineligibility is None:
        return is_first
    turn = "It has its turn once that one starts, asks for less or is gone"
    return f"{is_first} and cannot have it: {_INELIGIBLE[earlier_podgroup.ineligibility]}. {turn}"


def _details(snapshot: Snapshot, rejection: Rejection) -> str:
    details = rejection.details
    if isinstance(details, QueueBoundExceeded):
        if details.unevictable:
            return _unevictable_over_quota(snapshot, details)
        return _bound_exceeded(snapshot, rejection.reason, details)
    if isinstance(details, FitErrors):
        return _fit_errors(snapshot, details)
    if isinstance(details, MissingPods):
        return _missing_pods(details)
    return details.message


def kai_condition(snapshot: Snapshot, rejection: Rejection) -> tuple[str, str]:
    """Return reason and message as KAI writes them into conditions, for tools that read those."""
    details = rejection.details
    if rejection.reason == UnschedulableReason.PREEMPTION_DELAY:
        return "PreemptionDelayNotElapsed", rejection_message(snapshot, rejection)
    if isinstance(details, QueueBoundExceeded):
        is_limit = rejection.reason == UnschedulableReason.EXCEEDS_LIMIT
        return ("OverLimit" if is_limit else "NonPreemptibleOverQuota"), rejection_message(
            snapshot, rejection
        )
    if rejection.reason == UnschedulableReason.QUEUE_MISSING:
        return "QueueDoesNotExist", rejection_message(snapshot, rejection)
    if isinstance(details, FitErrors):
        histogram = ", ".join(sorted(_kai_fit_errors(snapshot.resources, details)))
        return "PodSchedulingErrors", f"no nodes with enough resources were found: {histogram}."
    return rejection.reason.title, rejection_message(snapshot, rejection)


def _bound_exceeded(
    snapshot: Snapshot, reason: UnschedulableReason, details: QueueBoundExceeded
) -> str:
    is_limit = reason != UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA
    names, bounds = snapshot.queues.names, (details, *details.others)
    has = _first_listed(_bound(names, it, is_limit=is_limit) for it in bounds)
    bound = has if is_limit else f"what cannot be preempted may have {has}"
    requested = {it.kind: it.requested for it in bounds}
    needs = _listed(_at_least(kind, number) for kind, number in requested.items())
    are = "are" if len(requested) > 1 else _is_or_are(details.kind, details.requested)
    never = [it for it in bounds if it.requested > it.bound]
    when = "It can never start unless" if never else "It can start when"
    change = _first_listed(
        (_bound_remedy(names, it, is_limit=is_limit) for it in never or bounds), ", and "
    )
    ways = [*["it asks for less"] * bool(never), *["it may be preempted"] * (not is_limit)]
    return f"{bound}; {needs} more {are} needed. {when} {_or([change, *ways])}"


def _unevictable_over_quota(snapshot: Snapshot, details: QueueBoundExceeded) -> str:
    """Return that a queue borrows no more, because what it has cannot be reclaimed."""
    bounds, podgroups = (details, *details.others), details.unevictable
    has = _listed(_amount_of_kind(it.kind, it.allocated) for it in bounds)
    quota = _listed(_amount_of_kind(it.kind, it.bound) for it in bounds)
    needs = _listed(_at_least(it.kind, it.requested) for it in bounds)
    over = _listed(_amount_of_kind(it.kind, it.allocated - it.bound) for it in bounds)
    queue, many = snapshot.queues.names[details.queue], "s" if len(podgroups) > 1 else ""
    podgroup_names = _first_listed(snapshot.podgroups[row].name for row in podgroups)
    refusal = f"queue {queue} may borrow nothing more: it has {has} that it cannot give back"
    because = f"because {len(podgroups)} PodGroup{many} cannot be evicted ({podgroup_names})"
    change = f"{over} of this can be given back or the quota of queue {queue} rises to {has}"
    are = "are" if len(bounds) > 1 else _is_or_are(details.kind, details.requested)
    more = f"{needs} more {are} needed. It can start when {change}"
    return f"{refusal}, and a quota of {quota}, {because}; {more}"


def _bound(names: tuple[str, ...], it: QueueBoundExceeded, *, is_limit: bool) -> str:
    queue, bound, has = names[it.queue], _amount_of_kind(it.kind, it.bound), it.allocated
    subject = f"queue {queue} may have at most" if is_limit else f"the quota of queue {queue},"
    text = f"{subject} {bound}{'' if is_limit else ','} and has {_amount_of_kind(it.kind, has)}"
    if it.releasing:
        text += f" and {_amount_of_kind(it.kind, it.releasing)} in pods that are ending"
    return text


def _bound_remedy(names: tuple[str, ...], it: QueueBoundExceeded, *, is_limit: bool) -> str:
    """Return what would make room below a bound: a larger bound, or resources that are released."""
    word, queue = "limit" if is_limit else "quota", names[it.queue]
    whole = it.allocated + it.releasing + it.requested
    if it.releasing:
        left = _at_least(it.kind, whole - it.bound)
        rises = f"its {word} rises to {_at_least(it.kind, whole)}"
        return f"pods of queue {queue} that are ending have left {left} or {rises}"
    if it.requested > it.bound:
        more, has = _at_least(it.kind, whole), _amount_of_kind(it.kind, it.allocated)
        meanwhile = f" (to {more} as long as it has {has})" if it.allocated else ""
        return f"the {word} of queue {queue} rises to {_at_least(it.kind, it.requested)}{meanwhile}"
    over = whole - it.bound
    back = f"{_at_least(it.kind, over)} of {'' if is_limit else 'that in '}queue {queue}"
    are = _is_or_are(it.kind, over)
    return f"{back} {are} given back or its {word} rises to {_at_least(it.kind, whole)}"


def _missing_pods(details: MissingPods) -> str:
    missing = details.podsets
    if not missing:
        return "pods are missing: no sub-group that is missing can be whole"
    until = []
    if any(it.existing < it.needed for it in missing):
        until.append("the others exist")
    if any(it.gated for it in missing):
        until.append("the gates are gone")
    listed = _listed(_incomplete_podset(it) for it in missing)
    return f"pods are missing: {listed}. It waits until {' and '.join(until)}"


def _incomplete_podset(it: IncompletePodSet) -> str:
    gated = f"{it.gated} of them {'is' if it.gated == 1 else 'are'} gated (schedulingGates)"
    exist = f"{it.existing} of {it.needed} exist in {it.podset}"
    return f"{exist}, {gated}" if it.gated else exist


def _fit_errors(snapshot: Snapshot, details: FitErrors) -> str:
    resources = snapshot.resources
    signature = snapshot.signatures[details.signature]
    requested = [
        _request(resources, r, n)
        for r, n in enumerate(signature.request)
        if n and r != resources.pods
    ]
    unknown = (
        [_first_listed(f"{n} {name}" for name, n in signature.unknown_resources)]
        if signature.unknown_resources
        else []
    )
    requests = _listed([*requested, *unknown])
    subject = f"{details.placed} of {details.needed} pods have room, the next asks for"
    if details.needed == 1:
        subject = "it asks for"
    nodes = len(snapshot.nodes.names)
    reasons = _listed(_node_reasons(snapshot, details)) or "there is none"
    remedy = _remedy(resources, details, signature)
    after = f"{_nodes_after(details.placed)} {_nodes(nodes)}"
    return f"{subject} {requests or 'nothing'}. {after} {reasons}. {remedy}"


def _nodes_after(placed: int) -> str:
    """Return that nodes are counted after the pods before it are placed."""
    if not placed:
        return "Of"
    return f"After {placed} of its pods {'is' if placed == 1 else 'are'} placed, of"


def _node_reasons(snapshot: Snapshot, details: FitErrors) -> Iterator[str]:
    for fit_error_reason, count in sorted(details.counts.items(), reverse=True):
        if fit_error_reason == FitErrorReason.ROOM:
            yield _lack_of_room(snapshot.resources, details, count)
            continue
        own = details.own_counts.get(fit_error_reason, 0)
        because = f"{own} because of its own pods" if own else ""
        named = because or _reason_names(snapshot, details, fit_error_reason, count)
        yield f"{count} {_FIT_ERRORS[fit_error_reason][count > 1]}{named and f' ({named})'}"


def _reason_names(
    snapshot: Snapshot, details: FitErrors, fit_error_reason: FitErrorReason, count: int
) -> str:
    """Return the names of taints, labels or resources in the way, the most frequent first."""
    if fit_error_reason == FitErrorReason.TAINT:
        return _first_listed(snapshot.nodes.taint_names[it] for it in _by_count(details.taints))
    if fit_error_reason == FitErrorReason.SELECTOR:
        keys = _first_listed(_by_count(details.keys))
        return keys and f"by {keys}"
    if fit_error_reason == FitErrorReason.TOO_SMALL:
        unknown = _first_listed(
            name for name, _ in snapshot.signatures[details.signature].unknown_resources
        )
        named = [
            _sizes(snapshot.resources, details, count),
            f"no node has {unknown}" if unknown else "",
        ]
        return "; ".join(filter(None, named))
    return ""


def _sizes(resources: ResourceColumns, details: FitErrors, count: int) -> str:
    """Return what nodes have of what they have too little of."""
    small, order = details.too_small, _by_count(details.too_small)
    most = {r: _amount(resources, r, details.largest_allocatable[r]) for r in order}
    if any(small[r] < count for r in order):
        return _first_listed(f"{small[r]} with at most {most[r]}" for r in order)
    subject = "it has" if count == 1 else "the largest has"
    return f"{subject} {_first_listed(most.values())}" if most else ""


def _by_count(counts: Mapping[N, int]) -> list[N]:
    return sorted(counts, key=lambda it: (-counts[it], it))


def _lack_of_room(resources: ResourceColumns, details: FitErrors, count: int) -> str:
    free = _listed(
        _amount(resources, r, details.largest_free[r]) for r in _by_count(details.insufficient)
    )
    if count == 1:
        return f"1 lacks room ({free} free)"
    return f"{count} lack room (at most {free} free on one)"


def _remedy(resources: ResourceColumns, details: FitErrors, signature: SchedulingSignature) -> str:
    if FitErrorReason.ROOM not in details.counts:
        return _node_remedy(resources, details, signature)
    insufficient = sorted(details.insufficient)
    requested = {r: signature.request[r] * details.unplaced for r in insufficient}
    if details.fitting < details.unplaced:
        change = _node_remedy(resources, details, signature, requested)
        return f"Even with nobody else there, {_too_few(details)}. {change}"
    room = _needed_room(resources, details, requested)
    if details.reason == UnschedulableReason.FRAGMENTED:
        return f"There is enough in all, but in pieces: it can start when {room}"
    short = [
        r for r in insufficient if details.largest_free[r] < details.total_free[r] < requested[r]
    ]
    if short:
        free = _listed(_amount(resources, r, details.total_free[r]) for r in short)
        together = f"Together they {'then ' if details.placed else ''}have"
        return f"{together} {free} free: it can start when {room}"
    return f"It can start when {room}"


def _too_few(details: FitErrors) -> str:
    if details.placed + details.unplaced == details.needed:
        return f"there is room for only {details.placed + details.fitting} of {details.needed} pods"
    if not details.fitting:
        return "there is no room for such a pod beside its own"
    return f"there is room for only {details.fitting} of {details.unplaced} such pods"


def _needed_room(resources: ResourceColumns, details: FitErrors, requested: dict[int, int]) -> str:
    """Return how much room the pods that are left need."""
    needs = _listed(_amount(resources, r, n) for r, n in requested.items())
    is_one = details.counts[FitErrorReason.ROOM] == 1
    then = "then " if details.placed else ""
    if details.unplaced == 1:
        return f"{'that node' if is_one else 'one of them'} {then}has {needs} free"
    subject = f"that node {then}has" if is_one else f"they {then}have"
    return f"{subject} room for {details.unplaced} such pods ({needs})"


def _node_remedy(
    resources: ResourceColumns,
    details: FitErrors,
    signature: SchedulingSignature,
    requested: Mapping[int, int] = _NOTHING,
) -> str:
    """Return what could open a node to it, the nearest first; of each node one reason is known.

    One more node may not be enough for many pods, or while other pods use it.
    """
    counts, own = details.counts, details.own_counts
    foreign = [it for it in _REMEDIES if counts.get(it, 0) > own.get(it, 0)]
    if {*details.too_small} == {
        resources.pods
    } and not signature.unknown_resources:  # each pod needs a place
        foreign.remove(FitErrorReason.TOO_SMALL)
    changes = [_REMEDIES[it] for it in sorted(foreign, reverse=True)[:_MAX_REMEDIES]]
    if FitErrorReason.CLAIM not in foreign and not (
        signature.rwop_claims and FitErrorReason.CLAIM in counts
    ):
        changes.append("a node that matches is added")
    if not changes:
        return "It can never start: its own pods are in each other's way"
    if details.unplaced == 1:
        return f"It can start when {_or(changes)}"
    is_as_it_is = FitErrorReason.TOO_SMALL not in foreign  # else it may ask for less
    needs = _listed(_amount(resources, r, n) for r, n in requested.items() if is_as_it_is)
    room = f"room for {details.unplaced} such pods{needs and f' ({needs})'}"
    return f"It can start when {_or(changes)}, as long as there is then {room}"


def _kai_fit_errors(resources: ResourceColumns, details: FitErrors) -> Iterator[str]:
    for fit_error_reason, count in details.counts.items():
        if fit_error_reason != FitErrorReason.ROOM:
            yield f"{count} node(s) {_FIT_ERRORS[fit_error_reason][1]}"
    for r, count in details.insufficient.items():
        yield f"{count} node(s) didn't have enough resources: {resources.names[r]}"


def _request(resources: ResourceColumns, resource: int, number: int) -> str:
    """Return what a pod requests; a number that was cut is not named."""
    if number < MAX_REQUEST:
        return _amount(resources, resource, number)
    kind = resources.kinds[resource]
    is_named = kind != NONE and (kind != ResourceKind.GPU or resource in resources.gpus)
    name = _KIND_NAMES[ResourceKind(kind)] if is_named else resources.names[resource]
    return f"more {name} than any node can have"


def _amount(resources: ResourceColumns, resource: int, number: int) -> str:
    if resource == resources.pods:
        return f"{number} place{'' if number == 1 else 's'} for pods"
    kind = resources.kinds[resource]
    if kind == NONE or (kind == ResourceKind.GPU and resource not in resources.gpus):
        return f"{number} {resources.names[resource]}"
    if kind == ResourceKind.GPU and resources.gpus[1:]:
        return f"{_short(number / 1000)} {resources.names[resource]}"
    return _amount_of_kind(ResourceKind(kind), number)


def _at_least(kind: ResourceKind, number: int) -> str:
    """Return a sufficient amount, rounded up; it may have been cut."""
    if kind == ResourceKind.MEMORY:
        step = _MIB if 0 < number < _GIB / 100 else _GIB
        number = -(-(-(-number * 1000 // step) * step) // 1000)
    return ("at least " if number >= MAX_QUEUE_REQUEST else "") + _amount_of_kind(kind, number)


def _amount_of_kind(kind: ResourceKind, number: int) -> str:
    if kind != ResourceKind.MEMORY:
        return f"{_short(number / 1000)} {_KIND_NAMES[kind]}"
    if 0 < number < _GIB / 100:
        return f"{_short(number / _MIB)} MiB memory"
    return f"{_short(number / _GIB)} GiB memory"


def _is_or_are(kind: ResourceKind, number: int) -> str:
    one = _GIB if kind == ResourceKind.MEMORY else 1000
    return "is" if number <= one else "are"


def _short(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _or(parts: list[str]) -> str:
    return _listed([*parts[:-1], f"or {parts[-1]}"] if parts[1:] else parts)


def _first_listed(parts: Iterable[str], between: str = ", ") -> str:
    """Return the first of some parts, and whether there are more."""
    first = [*islice(parts, _MAX_LISTED + 1)]
    return between.join(first[:_MAX_LISTED]) + (", …" if first[_MAX_LISTED:] else "")
