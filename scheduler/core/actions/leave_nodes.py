"""The action nodeleaving: gangs move off nodes that leave the cluster, before they are torn apart.

It is no action that a site can switch off, and comes first: a pod that replaces one that has left
is not placed beside pods that are about to be evicted. What it frees is there for the next plan.
"""

from dataclasses import replace
from typing import Final

from scheduler.core.actions.stale_gang import evict_whole
from scheduler.core.gang import is_satisfied
from scheduler.core.model.podgroup import (
    PodGroupInfo,
    PodSet,
    SubGroupTree,
    podsets_of,
)
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.session import Session
from trainer_kai.api.scheduler_names import Action

_AGAIN_S: Final = 10


def leave_nodes(session: Session) -> None:
    """Evict gangs that need pods on nodes that leave, each with all PodGroups of its workload.

    Budgets hold as long as no needed pod has gone: where one has, the others do no work. Whether a
    gang is preemptible is not asked: the node goes in any case. What reports conditions may be
    wrong about all nodes at once: then the limit of evicted GPUs holds.
    """
    snapshot, allowance = session.snapshot, session.allowance
    now, podgroups = snapshot.now, snapshot.podgroups
    rows = [row for row in snapshot.departing if _must_leave(snapshot, podgroups[row])]
    if not rows:
        return

    def is_allowed(together: tuple[int, ...], pods: tuple[int, ...]) -> bool:
        departures = [it for row in together if (it := podgroups[row].departure) is not None]
        if any(it.has_begun(now) for it in departures):
            return True
        is_certain = any(it.is_certain(now) for it in departures)
        if session.is_limit_reached and not is_certain:
            return False
        return not allowance.violated(allowance.counts(pods))

    evict_whole(session, rows, Action.NODE_LEAVING, is_allowed)
    for row in session.evicted:
        session.protect(row)  # no other action evicts it once more


def next_departure_at(snapshot: Snapshot) -> int | None:
    """Return when to look again at PodGroups that leave, in seconds since 1970; None for never.

    When one may be moved again; else soon, for budgets and the limit of evicted GPUs change. Pods
    that leave alone may stay there for days.
    """
    now = snapshot.now
    podgroups = (snapshot.podgroups[row] for row in snapshot.departing)
    departures = (
        it.departure
        for it in podgroups
        if _is_gang(it) and not is_satisfied(_without_leaving(it.tree))
    )
    times = (it.not_before for it in departures if it is not None)
    return min((at if at > now else now + _AGAIN_S for at in times), default=None)


def _must_leave(snapshot: Snapshot, podgroup: PodGroupInfo) -> bool:
    departure = podgroup.departure
    if departure is None or not _is_gang(podgroup):
        return False
    if not departure.has_begun(snapshot.now):
        is_in_time = departure.not_before <= snapshot.now
        return podgroup.has_running and is_in_time and _needs_leaving(podgroup.tree)
    # A workload is suspended also if all its pods have gone: each would count as a failure.
    may_leave = podgroup.has_running or bool(podgroup.workload)
    return may_leave and not is_satisfied(_without_leaving(podgroup.tree))


def _is_gang(podgroup: PodGroupInfo) -> bool:
    """Say whether more is lost than the pods that leave: others, or an attempt of a Job."""
    return bool(podgroup.workload) or sum(it.minimum for it in podsets_of(podgroup.tree)) > 1


def _needs_leaving(tree: SubGroupTree) -> bool:
    """Say whether pods that leave are needed; a PodGroup that is short of others waits for them."""
    return is_satisfied(tree) and not is_satisfied(_without_leaving(tree))


def _without_leaving(tree: SubGroupTree) -> SubGroupTree:
    if isinstance(tree, PodSet):
        return replace(tree, running=tree.running - tree.leaving) if tree.leaving else tree
    return replace(tree, children=tuple(map(_without_leaving, tree.children)))
