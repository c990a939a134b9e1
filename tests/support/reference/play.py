"""The first cycle of the action allocate: objects in, decisions and verdicts out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support.reference.amounts import AXES
from tests.support.reference.ending import take
from tests.support.reference.evicting import take_back
from tests.support.reference.moving import move_all
from tests.support.reference.promised import Held, lateness
from tests.support.reference.reading import read
from tests.support.reference.shares import share_out
from tests.support.reference.things import Cluster, Unit
from tests.support.reference.trees import can_be, chunk, satisfied
from tests.support.reference.turns import is_promised, next_unit

__all__ = ["Outcome", "allocate"]


@dataclass
class Outcome:
    """What a cycle decided. CPU in thousandths, memory in bytes, GPUs in devices."""

    binds: dict[tuple[str, str], str] = field(default_factory=dict)
    nominations: dict[tuple[str, str], str] = field(default_factory=dict)
    evictions: dict[tuple[str, str], str] = field(default_factory=dict)
    reservations: dict[tuple[str, str, str, str], int] = field(default_factory=dict)
    unschedulable: dict[tuple[str, str], str] = field(default_factory=dict)
    fair_shares: dict[str, dict[str, int]] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)  # of successful attempts


def allocate(
    objects: Iterable[Mapping[str, Any]],
    now: str = "",
    then: Sequence[str] = (),
    victims: str = "kai",
    *,
    keeps_budgets: bool = False,
) -> Outcome:
    """Play one cycle at a time in RFC 3339, or at the newest timestamp of the objects.

    *then* are further actions, of reclaim and preempt, or consolidation alone; `TooMany` says that
    they are too much work. *victims* is who loses something first; *keeps_budgets* is in reclaim.
    """
    cluster = read(list(objects), now)
    cluster.victims, cluster.keeps_budgets = victims, keeps_budgets
    share_out(cluster)
    outcome = Outcome()
    playing = []
    for unit in cluster.units:
        verdict = _at_once(cluster, unit)
        if verdict and unit.waits:
            outcome.unschedulable[unit.namespace, unit.name] = verdict
        elif not verdict and (unit.waits or _misses_later_pods(unit)):
            playing.append(unit)
    held = Held(cluster)
    held.hold(playing)
    before = -2 if held.of else -1  # another round, for there may be more room after this one
    while playing and len(outcome.order) > before:
        before = len(outcome.order) if before > -2 else -1
        playing = _round(cluster, playing, outcome, held)
    _take_back(cluster, playing, outcome, then)
    for unit in cluster.units:
        if unit.has_strays:
            outcome.unschedulable[unit.namespace, unit.name] = "Misconfigured"
    _write(cluster, outcome)
    return outcome


def _round(cluster: Cluster, units: list[Unit], outcome: Outcome, held: Held) -> list[Unit]:
    """Give turns until nobody is left; return who failed at last, with the verdict told."""
    playing, failed = list(units), []
    are_promised = any(is_promised(cluster, unit) for unit in units)
    early = partial(lateness, cluster, playing) if are_promised else None
    while playing:
        unit = next_unit(cluster, playing, early)
        verdict = _turn(cluster, unit, held)
        if verdict:
            outcome.unschedulable[unit.namespace, unit.name] = verdict
            failed.append(unit)
        else:
            outcome.unschedulable.pop((unit.namespace, unit.name), None)
            outcome.order.append((unit.namespace, unit.name))
        if verdict or not unit.waits:
            playing.remove(unit)
    return failed


def _turn(cluster: Cluster, unit: Unit, held: Held) -> str:
    """Try one chunk; if need be where others of the queue were promised room."""
    held.let_go(unit)
    unit.awaits_its_own = False
    verdict = held.over_capacity(unit, chunk(unit.root)) or _attempt(cluster, unit)
    others = held.may_have(unit)
    if verdict and others:
        with held.lifted(others):
            verdict = held.over_capacity(unit, chunk(unit.root)) or _attempt(cluster, unit)
    if not verdict and unit.waits:
        held.hold([unit])
    return verdict


def _take_back(
    cluster: Cluster, failed: list[Unit], outcome: Outcome, actions: Sequence[str]
) -> None:
    """Let those who failed take from others; who got something may grow as far as there is room."""
    verdicts = {unit: outcome.unschedulable[unit.namespace, unit.name] for unit in failed}
    moves = actions == ("consolidation",)
    takings = move_all(cluster, verdicts) if moves else take_back(cluster, verdicts, actions)
    for unit, action, gone in takings:
        for pod in gone:
            outcome.evictions[pod.namespace, pod.name] = action
        verdicts.pop(unit)
        unit.is_held = False
        del outcome.unschedulable[unit.namespace, unit.name]
        while unit.waits:
            verdict = _attempt(cluster, unit)
            if verdict:
                outcome.unschedulable[unit.namespace, unit.name] = verdicts[unit] = verdict
                break
    for unit in failed:
        if unit.is_held:
            outcome.unschedulable[unit.namespace, unit.name] = "PreemptionDelay"


def _at_once(cluster: Cluster, unit: Unit) -> str:
    """Return the verdict that needs no attempt."""
    way = cluster.way_up(unit.queue)
    if cluster.is_misconfigured(unit):
        return "Misconfigured"
    if not way or way[-1].parent:
        return "QueueMissing"
    return "" if can_be(unit.root) and not _is_slots_alone(cluster, unit) else "PodsMissing"


def _is_slots_alone(cluster: Cluster, unit: Unit) -> bool:
    """Say whether a unit of which nothing is there, or promised, would take slots alone."""
    names = {machine.name for machine in cluster.machines}
    for pod in unit.pods:
        if pod.state == "there" or (pod.state == "waiting" and pod.nominated in names):
            return False
    some = chunk(unit.root)
    return bool(some) and all(pod.state == "later" for pod in some)


def _misses_later_pods(unit: Unit) -> bool:
    """Say whether a unit that runs could have slots for what it lacks."""
    runs = any(pod.state == "there" for pod in unit.pods)
    return runs and not satisfied(unit.root) and bool(chunk(unit.root))


def _attempt(cluster: Cluster, unit: Unit) -> str:
    """Try one chunk; return the verdict if it fails."""
    pods = chunk(unit.root)
    if not pods:
        return "PodsMissing"
    return take(cluster, unit, pods)


def _write(cluster: Cluster, outcome: Outcome) -> None:
    for unit in cluster.units:
        for leaf in unit.leaves:
            for pod in [*leaf.pods, *leaf.later]:
                if pod.state == "bound":
                    outcome.binds[pod.namespace, pod.name] = pod.node
                elif pod.state == "nominated" and not pod.later:
                    outcome.nominations[pod.namespace, pod.name] = pod.node
                elif pod.later and pod.state in ("reserved", "nominated"):
                    slot = (unit.namespace, unit.name, leaf.name or "default", pod.node)
                    outcome.reservations[slot] = outcome.reservations.get(slot, 0) + 1
    for queue in cluster.queues.values():
        way = cluster.way_up(queue.name)
        if not way[-1].parent:
            outcome.fair_shares[queue.name] = dict(zip(AXES, queue.fair, strict=True))
