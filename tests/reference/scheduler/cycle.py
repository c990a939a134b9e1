"""The first scheduling cycle: objects in, decisions and reasons out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.reference.scheduler.consolidation import consolidate
from tests.reference.scheduler.eviction import reclaim_and_preempt
from tests.reference.scheduler.fair_share import set_fair_shares
from tests.reference.scheduler.gpu_shares import NO_ID
from tests.reference.scheduler.model import ClusterInfo, PodGroupInfo, PodInfo, SharedGpu
from tests.reference.scheduler.nominated import NominatedCapacity, nomination_rank
from tests.reference.scheduler.placement import feasible_if_empty, too_large
from tests.reference.scheduler.queue_order import fits_empty_cluster, is_nominated, next_podgroup
from tests.reference.scheduler.read_objects import read_cluster
from tests.reference.scheduler.releasing import CapacityFailure, try_allocate
from tests.reference.scheduler.resources import QUEUE_RESOURCES, Amount
from tests.reference.scheduler.subgroups import can_be_satisfied, is_satisfied, tasks_to_allocate
from tests.reference.scheduler.topology import reach


@dataclass
class CycleResult:
    """What a cycle decided. CPU in thousandths, memory in bytes, GPUs in devices."""

    binds: dict[tuple[str, str], str] = field(default_factory=dict)
    nominations: dict[tuple[str, str], str] = field(default_factory=dict)
    # By bound pod: the GPUs of which it has shares, by their ids or else all pods on them.
    gpus: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    evictions: dict[tuple[str, str], str] = field(default_factory=dict)
    reservations: dict[tuple[str, str, str, str], int] = field(default_factory=dict)
    unschedulable: dict[tuple[str, str], str] = field(default_factory=dict)
    fair_shares: dict[str, dict[str, Amount]] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)  # of successful attempts


def run_cycle(
    objects: Iterable[Mapping[str, Any]],
    now: str = "",
    then: Sequence[str] = (),
    victims: str = "kai",
    *,
    keeps_budgets: bool = False,
    checks_order: bool = False,
) -> CycleResult:
    """Play one cycle at a time in RFC 3339, or at the newest timestamp of the objects.

    *then* are further actions, of reclaim and preempt, or consolidation alone; they raise
    `TooManyCandidates` where the search is too large. *victims* is the policy that orders victims;
    with *keeps_budgets* reclaim keeps to PodDisruptionBudgets. With *checks_order* it raises
    `DependsOnOrder` where more victims leave less free.
    """
    cluster = read_cluster(list(objects), now)
    cluster.victim_policy, cluster.respects_budgets = victims, keeps_budgets
    cluster.checks_order = checks_order
    set_fair_shares(cluster)
    outcome = CycleResult()
    playing = []
    for podgroup in cluster.podgroups:
        reason = _prefilter_reason(cluster, podgroup)
        if reason and podgroup.has_waiting:
            outcome.unschedulable[podgroup.namespace, podgroup.name] = reason
        elif not reason and (podgroup.has_waiting or _lacks_expected_pods(podgroup)):
            playing.append(podgroup)
    held = NominatedCapacity(cluster)
    held.reserve(playing)
    before = (
        -2 if held.places_by_podgroup else -1
    )  # another round, for there may be more room after this one
    while playing and len(outcome.order) > before:
        before = len(outcome.order) if before > -2 else -1
        playing = _allocate_round(cluster, playing, outcome, held)
    _run_eviction_actions(cluster, playing, outcome, then)
    for podgroup in cluster.podgroups:
        if podgroup.has_misplaced_waiting:
            outcome.unschedulable[podgroup.namespace, podgroup.name] = "Misconfigured"
    _write_result(cluster, outcome)
    return outcome


def _allocate_round(
    cluster: ClusterInfo,
    podgroups: list[PodGroupInfo],
    outcome: CycleResult,
    held: NominatedCapacity,
) -> list[PodGroupInfo]:
    """Attempt PodGroups until none is left; return the failed ones, with their reasons noted."""
    playing, failed = list(podgroups), []
    are_promised = any(is_nominated(cluster, podgroup) for podgroup in podgroups)
    early = partial(nomination_rank, cluster, playing) if are_promised else None
    while playing:
        podgroup = next_podgroup(cluster, playing, early)
        reason = _allocate_one(cluster, podgroup, held)
        if reason:
            outcome.unschedulable[podgroup.namespace, podgroup.name] = reason
            failed.append(podgroup)
        else:
            outcome.unschedulable.pop((podgroup.namespace, podgroup.name), None)
            outcome.order.append((podgroup.namespace, podgroup.name))
        if reason or not podgroup.has_waiting:
            playing.remove(podgroup)
    return failed


def _allocate_one(cluster: ClusterInfo, podgroup: PodGroupInfo, held: NominatedCapacity) -> str:
    """Try the next tasks; if need be on nodes to which others of the queue are nominated."""
    held.release(podgroup)
    podgroup.awaits_own_release = False
    reason = _attempt(cluster, podgroup, held.capacity_failure)
    others = held.may_take_from(podgroup)
    if reason and others:
        with held.released(others):
            reason = _attempt(cluster, podgroup, held.capacity_failure)
    if not reason and podgroup.has_waiting:
        held.reserve([podgroup])
    return _without_false_promise(cluster, podgroup, reason)


def _without_false_promise(cluster: ClusterInfo, podgroup: PodGroupInfo, reason: str) -> str:
    """Return the reason, unless it is a bound and a pod would fit on no empty node."""
    if reason not in ("ExceedsLimit", "NonPreemptibleOverQuota"):
        return reason
    pods = tasks_to_allocate(podgroup.root)
    within = [it for domain in reach(cluster, podgroup, pods) for it in domain]
    if not all(any(it in within for it in feasible_if_empty(cluster, pod)) for pod in pods):
        reason = "NoNodeMatches"
    elif (
        not fits_empty_cluster(cluster, podgroup) and too_large(cluster, podgroup, pods) is not None
    ):
        reason = "TopologyUnfit"
    else:
        return reason
    podgroup.awaits_own_release = False
    return reason


def _run_eviction_actions(
    cluster: ClusterInfo, failed: list[PodGroupInfo], outcome: CycleResult, actions: Sequence[str]
) -> None:
    """Let PodGroups that failed evict others; one that got something grows as far as it can."""
    reasons = {
        podgroup: outcome.unschedulable[podgroup.namespace, podgroup.name] for podgroup in failed
    }
    moves = actions == ("consolidation",)
    takings = (
        consolidate(cluster, reasons) if moves else reclaim_and_preempt(cluster, reasons, actions)
    )
    for podgroup, action, gone in takings:
        for pod in gone:
            outcome.evictions[pod.namespace, pod.name] = action
        reasons.pop(podgroup)
        podgroup.is_delayed = False
        del outcome.unschedulable[podgroup.namespace, podgroup.name]
        while podgroup.has_waiting:
            reason = _without_false_promise(cluster, podgroup, _attempt(cluster, podgroup))
            if reason:
                outcome.unschedulable[podgroup.namespace, podgroup.name] = reasons[podgroup] = (
                    reason
                )
                break
    for podgroup in failed:
        if podgroup.is_delayed:
            outcome.unschedulable[podgroup.namespace, podgroup.name] = "PreemptionDelay"


def _prefilter_reason(cluster: ClusterInfo, podgroup: PodGroupInfo) -> str:
    """Return the reason that shows without an attempt, if any."""
    way = cluster.queue_with_ancestors(podgroup.queue)
    if cluster.is_misconfigured(podgroup):
        return "Misconfigured"
    if not way or way[-1].parent:
        return "QueueMissing"
    return (
        ""
        if can_be_satisfied(podgroup.root) and not _reserves_only_expected(cluster, podgroup)
        else "PodsMissing"
    )


def _reserves_only_expected(cluster: ClusterInfo, podgroup: PodGroupInfo) -> bool:
    """Say whether a PodGroup without running or nominated pods would only reserve places."""
    names = {node_info.name for node_info in cluster.nodes}
    for pod in podgroup.pods:
        if pod.state == "there" or (pod.state == "waiting" and pod.nominated in names):
            return False
    some = tasks_to_allocate(podgroup.root)
    return bool(some) and all(pod.state == "later" for pod in some)


def _lacks_expected_pods(podgroup: PodGroupInfo) -> bool:
    """Say whether a PodGroup that runs could have reserved places for what it lacks."""
    runs = any(pod.state == "there" for pod in podgroup.pods)
    return runs and not is_satisfied(podgroup.root) and bool(tasks_to_allocate(podgroup.root))


def _attempt(
    cluster: ClusterInfo, podgroup: PodGroupInfo, failure: CapacityFailure | None = None
) -> str:
    """Try the next tasks; return the reason if that fails."""
    pods = tasks_to_allocate(podgroup.root)
    if not pods:
        return "PodsMissing"
    return try_allocate(cluster, podgroup, pods, failure)


def _write_result(cluster: ClusterInfo, outcome: CycleResult) -> None:
    for podgroup in cluster.podgroups:
        for podset in podgroup.podsets:
            for pod in [*podset.pods, *podset.expected]:
                reserved_place = podgroup.namespace, podgroup.name, podset.name or "default"
                _write_pod(pod, reserved_place, outcome)
    for gpu in [gpu for node_info in cluster.nodes for gpu in node_info.gpus]:
        _write_gpu(gpu, outcome)
    for queue in cluster.queues.values():
        way = cluster.queue_with_ancestors(queue.name)
        if not way[-1].parent:
            outcome.fair_shares[queue.name] = dict(
                zip(QUEUE_RESOURCES, queue.fair_share, strict=True)
            )


def _write_pod(pod: PodInfo, reserved_place: tuple[str, str, str], outcome: CycleResult) -> None:
    if pod.state == "bound":
        outcome.binds[pod.namespace, pod.name] = pod.node
    elif pod.state == "nominated" and not pod.is_expected:
        outcome.nominations[pod.namespace, pod.name] = pod.node
    elif pod.is_expected and pod.state in ("reserved", "nominated"):
        place = (*reserved_place, pod.node)
        outcome.reservations[place] = outcome.reservations.get(place, 0) + 1


def _write_gpu(gpu: SharedGpu, outcome: CycleResult) -> None:
    """Note which bound pods have a share of a GPU, and what it is called."""
    here = [pod for pod, _ in gpu.shares if pod.state in ("bound", "there", "old")]
    named = gpu.name if not gpu.name.startswith(NO_ID) else ""
    name = named or "+".join(sorted(pod.name for pod in here))
    for pod in here:
        if pod.state == "bound":
            outcome.gpus.setdefault((pod.namespace, pod.name), []).append(name)
            outcome.gpus[pod.namespace, pod.name].sort()
