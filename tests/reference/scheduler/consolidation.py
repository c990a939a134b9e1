"""Consolidation by a search of every set of candidates: rules 40a to 40e."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tests.reference.scheduler.eviction import (
    MAX_CANDIDATES,
    EvictionUnit,
    TooManyCandidates,
    check_order,
    evict,
    first_sufficient,
    in_victim_order,
    possible_eviction_units,
)
from tests.reference.scheduler.model import (
    ClusterInfo,
    PodGroupInfo,
    PodInfo,
    PodSet,
    total_charge,
)
from tests.reference.scheduler.placement import place
from tests.reference.scheduler.queue_order import capacity_failure, next_podgroup, podgroup_rank
from tests.reference.scheduler.releasing import (
    Checkpoint,
    awaits_own_release,
    claim_release,
    place_within_limits,
)
from tests.reference.scheduler.shared_gpus import put_on_fullest
from tests.reference.scheduler.subgroups import is_satisfied, tasks_to_allocate

_RETRIABLE = ("TopologyUnfit", "Fragmented", "NoCapacity", "ExceedsLimit")


def consolidate(
    cluster: ClusterInfo, reasons: dict[PodGroupInfo, str]
) -> Iterator[tuple[PodGroupInfo, str, list[PodInfo]]]:
    """Yield each PodGroup that gets room, and the pods evicted for it, with new places."""
    left = [
        podgroup
        for podgroup, reason in reasons.items()
        if reason in _RETRIABLE and not podgroup.awaits_own_release
    ]
    moved: set[PodGroupInfo] = set()
    while left := [podgroup for podgroup in left if podgroup not in moved]:
        podgroup = next_podgroup(cluster, left)
        left.remove(podgroup)
        if not podgroup.preemptible or reasons[podgroup] == "ExceedsLimit":
            continue
        if moved and _try_relocate(cluster, podgroup, [], keeps=True):
            yield podgroup, "consolidation", []
            continue
        candidates = in_victim_order(cluster, [*_candidates(cluster, podgroup)])
        if len(candidates) > MAX_CANDIDATES:
            raise TooManyCandidates

        def does(
            ranks: tuple[int, ...],
            candidates: list[EvictionUnit] = candidates,
            podgroup: PodGroupInfo = podgroup,
        ) -> bool:
            return _try_relocate(cluster, podgroup, [candidates[rank] for rank in ranks])

        if cluster.checks_order:
            check_order(len(candidates), does)
        some = first_sufficient(len(candidates), does, does)
        if some is not None:
            units = [candidates[rank] for rank in some]
            if not _fits_behind(cluster, podgroup, units):
                continue
            assert _try_relocate(cluster, podgroup, units, keeps=True)
            moved |= {one for unit in units for one in unit.podgroups}
            yield podgroup, "consolidation", [pod for unit in units for pod in unit.pods]


def _candidates(cluster: ClusterInfo, podgroup: PodGroupInfo) -> Iterator[EvictionUnit]:
    """Yield the PodGroups that can be moved, each with all its pods."""
    for unit in possible_eviction_units(cluster, set()):
        (one, *others) = unit.podgroups
        is_all = {*unit.pods} == {pod for pod in one.pods if pod.state in ("there", "old")}
        may = not others and not unit.is_partly_done
        if one is not podgroup and may and is_all and _can_relocate(one):
            yield replace(unit, freed=total_charge(unit.pods), rank=podgroup_rank(one))


def _can_relocate(podgroup: PodGroupInfo) -> bool:
    """Say whether a PodGroup can be made anew in reserved places.

    No test looks at one with several signatures.
    """
    is_alone = any(podgroup.name == f"pg-{pod.name}-{pod.uid}" for pod in podgroup.pods)
    requests_memory = any(pod.share and pod.share.memory for pod in podgroup.pods)
    may = not is_alone and not requests_memory and not podgroup.constraints
    return may and is_satisfied(podgroup.root)


def _try_relocate(
    cluster: ClusterInfo, podgroup: PodGroupInfo, units: list[EvictionUnit], *, keeps: bool = False
) -> bool:
    """Say whether a PodGroup and all that are moved find room; undo it unless it *keeps* it."""
    pods = tasks_to_allocate(podgroup.root)
    saved = Checkpoint(cluster)
    anew = [
        (one, podset, replace(pod, state="later", node="", is_expected=True))
        for unit in units
        for one in unit.podgroups
        for podset in one.podsets
        for pod in podset.pods
        if pod in unit.pods
    ]
    anew.sort(key=lambda it: [-n for n in (it[2].charged[i] for i in (2, 0, 1))])
    failure = partial(capacity_failure, cluster)
    may = not failure(podgroup, total_charge(pods, is_least=True)) and not awaits_own_release(
        cluster, podgroup, pods
    )
    evict(cluster, units)
    reason, waits = "", False
    if may:
        reason, waits = place_within_limits(cluster, podgroup, pods, failure, waits=bool(units))
    done = may and not reason and all(_relocate(cluster, one, pod) for one, _, pod in anew)
    if done and keeps:
        claim_release(cluster, podgroup, pods, waits=waits)
        _reserve_places(anew)
        return True
    saved.restore()
    return done


def _fits_behind(cluster: ClusterInfo, podgroup: PodGroupInfo, units: list[EvictionUnit]) -> bool:
    """Say whether a PodGroup fits also if the reserved places get their GPUs before it."""
    if not any(pod.share for unit in units for pod in unit.pods):
        return True
    saved = Checkpoint(cluster)
    assert _try_relocate(cluster, podgroup, units, keeps=True)
    places = [
        (one.namespace, one.name, podset.name, podset.expected.pop())
        for unit in units
        for one in unit.podgroups
        for podset in one.podsets
        for pod in podset.pods
        if pod in unit.pods
    ]
    saved.restore()
    evict(cluster, units)
    at = {node_info.name: node_info for node_info in cluster.nodes}
    fits = all(
        put_on_fullest(pod, at[pod.node]) for *_, pod in sorted(places, key=lambda it: it[:3])
    )
    fits = fits and not place(cluster, podgroup, tasks_to_allocate(podgroup.root))
    saved.restore()
    return fits


def _relocate(cluster: ClusterInfo, podgroup: PodGroupInfo, pod: PodInfo) -> bool:
    if place(cluster, podgroup, [pod]):
        return False
    cluster.charge(podgroup, pod)
    return True


def _reserve_places(anew: list[tuple[PodGroupInfo, PodSet, PodInfo]]) -> None:
    for _, podset, pod in anew:
        podset.expected.append(pod)
