"""Which waiting PodGroups ask for nodes, for which of their pods, and why the others ask for none.

An autoscaler adds nodes for every pod that it sees, so all that is asked for has to be of use at
once: it is counted in the queues as if it ran, and nothing is asked for that would exceed a bound
of a queue. PodGroups that ask already come first, so that a new one does not take their turn; then
the order is by priority and age. Those that gave up for a while take nothing from the others. A
PodGroup asks for all pods of its next attempt or for none, and then for further ones one by one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from scheduler.core.gang import NONE_ASSIGNED, Tasks, pending_after, tasks_to_allocate
from scheduler.core.model.node_request import (
    MOST_ASKING,
    LackingPods,
    NodeRequest,
    RefusalCause,
    RequestRefusal,
)
from scheduler.core.model.rejections import (
    FitErrors,
    PreFilterFailure,
    QueueBoundExceeded,
    Rejection,
)
from scheduler.core.model.resources import NONE, RESOURCE_KINDS, UNBOUND, Amounts
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage, charged
from trainer_kai.api.reasons import UnschedulableReason

_MANY: Final = RequestRefusal(RefusalCause.MANY)
_CAPACITY_REASONS: Final = frozenset(
    {
        UnschedulableReason.NO_NODE_MATCHES,
        UnschedulableReason.FRAGMENTED,
        UnschedulableReason.NO_CAPACITY,
        UnschedulableReason.TOPOLOGY_UNFIT,
    }
)


def waits_for_capacity(rejection: Rejection) -> bool:
    """Say whether a PodGroup waits for room on nodes, and for nothing else.

    A node cures neither a bound of a queue nor a claim of a volume or of devices.
    """
    details = rejection.details
    if rejection.queue_rejection is not None or isinstance(details, PreFilterFailure):
        return False
    is_delayed = rejection.reason == UnschedulableReason.PREEMPTION_DELAY
    return isinstance(details, FitErrors) and (is_delayed or rejection.reason in _CAPACITY_REASONS)


def node_requests(
    snapshot: Snapshot,
    rejections: Iterable[Rejection],
    asking: Collection[int] = (),
    paused: Collection[int] = (),
    *,
    is_within_quota: bool = False,
) -> Mapping[int, NodeRequest]:
    """Return what waiting PodGroups ask for, by PodGroup.

    Those that are *asking* already come first, and those that are *paused* ask for nothing now.
    With *is_within_quota* nothing is asked for beyond the quotas of queues.
    """
    bounds = _Bounds(snapshot, is_within_quota=is_within_quota)
    found: dict[int, NodeRequest] = {}
    waiting = []
    for it in rejections:
        if it.podgroup == NONE:
            continue
        if waits_for_capacity(it):
            if it.podgroup in paused:
                has_claims = _has_claims(snapshot, _next_signatures(snapshot, it.podgroup))
                found[it.podgroup] = NodeRequest(it.podgroup, (), has_claims=has_claims)
            else:
                waiting.append(it)
        elif (refusal := _bound_refusal(it)) is not None:
            found[it.podgroup] = NodeRequest(it.podgroup, (), refusal=refusal)
    podgroups = snapshot.podgroups
    waiting.sort(
        key=lambda it: (it.podgroup not in asking, -podgroups[it.podgroup].priority, it.podgroup)
    )
    number = 0
    for it in waiting:
        if number == MOST_ASKING:
            found[it.podgroup] = NodeRequest(it.podgroup, (), refusal=_MANY)
            continue
        found[it.podgroup] = request = _request(snapshot, it, bounds)
        number += bool(request.pods)
    return found


def _bound_refusal(rejection: Rejection) -> RequestRefusal | None:
    queue_rejection = rejection.queue_rejection or rejection
    details = queue_rejection.details
    if not isinstance(details, QueueBoundExceeded):
        return None
    is_limit = queue_rejection.reason == UnschedulableReason.EXCEEDS_LIMIT
    return RequestRefusal(RefusalCause.LIMIT if is_limit else RefusalCause.QUOTA, details.queue)


def _request(snapshot: Snapshot, rejection: Rejection, bounds: "_Bounds") -> NodeRequest:
    row, details = rejection.podgroup, rejection.details
    assert isinstance(details, FitErrors)
    tree = snapshot.podgroups[row].tree
    tasks = tasks_to_allocate(tree)
    signatures = [*_signatures(snapshot, tasks)]
    lacking = tuple(_lacking(snapshot, signatures[details.placed :] or signatures))
    has_claims = _has_claims(snapshot, signatures)
    refusal = _unseen(snapshot, rejection, details, signatures)
    if refusal is None:
        refusal = bounds.refusal(row, signatures)
    if refusal is not None:
        return NodeRequest(row, (), lacking, refusal, has_claims)
    bounds.ask(row, signatures)
    pods = [pod for it in tasks for pod in it.pods]
    for pod in pending_after(tree, tasks, NONE_ASSIGNED):
        more = [int(snapshot.pods.signature[pod])]
        if bounds.refusal(row, more) is not None:
            break
        bounds.ask(row, more)
        pods.append(pod)
    return NodeRequest(row, tuple(pods), lacking, None, has_claims)


def _unseen(
    snapshot: Snapshot, rejection: Rejection, details: FitErrors, signatures: Sequence[int]
) -> RequestRefusal | None:
    """Return why an autoscaler, which knows kube-scheduler's filters only, sees no need."""
    if rejection.reason == UnschedulableReason.PREEMPTION_DELAY:
        return RequestRefusal(RefusalCause.DELAY)
    shortage = details.domain_shortage
    if shortage is not None:
        level = snapshot.topologies[shortage.topology].levels[shortage.level]
        return RequestRefusal(RefusalCause.DOMAIN, level=level)
    distinct = [snapshot.signatures[it] for it in {*signatures}]
    if any(it.node == NONE for one in distinct for it in one.avoided_nodes):
        return RequestRefusal(RefusalCause.AVOIDS)
    if any(it.shared_devices for it in distinct):
        return RequestRefusal(RefusalCause.SHARE)
    return None


def _has_claims(snapshot: Snapshot, signatures: Iterable[int]) -> bool:
    return any(snapshot.signatures[it].claims for it in {*signatures})


def _next_signatures(snapshot: Snapshot, row: int) -> Iterator[int]:
    return _signatures(snapshot, tasks_to_allocate(snapshot.podgroups[row].tree))


def _signatures(snapshot: Snapshot, tasks: Tasks) -> Iterator[int]:
    for podset, pods, expected in tasks:
        yield from snapshot.pods.signature[[*pods]].tolist()
        yield from [podset.expected_signature] * expected


def _lacking(snapshot: Snapshot, signatures: Iterable[int]) -> Iterator[LackingPods]:
    amounts = (snapshot.signatures[it].queue_request for it in signatures)
    for each, equal in groupby(amounts):
        yield LackingPods(len([*equal]), each)


class _Bounds:
    """What queues use together with all that is asked for."""

    def __init__(self, snapshot: Snapshot, *, is_within_quota: bool) -> None:
        self._snapshot: Final = snapshot
        self._usage: Final = Usage(snapshot.queues)
        self._is_within_quota: Final = is_within_quota
        self._asked: Final[set[int]] = set()  # queues for which something is asked for

    def refusal(self, row: int, signatures: Sequence[int]) -> RequestRefusal | None:
        """Return which bound would be exceeded, of the queue or of one above it."""
        podgroup, usage = self._snapshot.podgroups[row], self._usage
        if podgroup.queue == NONE:
            return None
        amounts = self._charge(signatures)
        for q in usage.paths[podgroup.queue]:
            is_new = q not in self._asked
            if _exceeds(usage.allocated[q], amounts, usage.limit[q]):
                return RequestRefusal(RefusalCause.LIMIT, q, not is_new)
            counted = usage.allocated[q] if self._is_within_quota else usage.non_preemptible[q]
            has_quota = self._is_within_quota or not podgroup.is_preemptible
            if has_quota and _exceeds(counted, amounts, usage.quota[q]):
                return RequestRefusal(RefusalCause.QUOTA, q, not is_new)
        return None

    def ask(self, row: int, signatures: Sequence[int]) -> None:
        podgroup = self._snapshot.podgroups[row]
        if podgroup.queue == NONE:
            return
        self._asked.update(self._usage.paths[podgroup.queue])
        is_fixed = not podgroup.is_preemptible
        self._usage.charge(podgroup.queue, self._charge(signatures), is_non_preemptible=is_fixed)

    def _charge(self, signatures: Sequence[int]) -> Amounts:
        runs = ((it, len([*equal])) for it, equal in groupby(signatures))
        return charged(self._snapshot.signatures, runs)


def _exceeds(used: Sequence[int], amounts: Amounts, bounds: Sequence[int]) -> bool:
    return any(
        amounts[kind] and bounds[kind] != UNBOUND and used[kind] + amounts[kind] > bounds[kind]
        for kind in RESOURCE_KINDS
    )
