"""What is known to be in the way of a unit before anybody looks for room."""

from collections.abc import Iterable, Iterator
from typing import Final

from scheduler.core.model import Bar, Verdict
from scheduler.state.after import Afters
from scheduler.state.crowds import too_much
from scheduler.state.gang import Gang
from scheduler.state.kin import Kin
from scheduler.state.roll import THERE, WAITING
from scheduler.state.sharing import Sharing
from scheduler.state.standing import Standing
from scheduler.state.view import View
from trainer_kai.api.meta import Key
from trainer_kai.api.names import QUEUE

__all__ = ["Bars", "has_begun", "is_silent"]

_WAKES_ON: Final = frozenset({"pods"})
_SILENT: Final = (Verdict.MISCONFIGURED, Verdict.FORBIDDEN_QUEUE, Verdict.WAITING_FOR_STAGE)


class Bars:
    """Of several the smallest verdict is told, of equal ones that of the oldest pods."""

    def __init__(self, view: View) -> None:
        self._view: Final = view
        self._after: Final = Afters(view.roll, view.gangs)
        self._crowded: Final[dict[Key, str]] = {}  # what gangs of which some are left out are told

    def of_gang(self, gang: Gang) -> Bar | None:
        """Return what is in the way of a gang."""
        return _worst(self._all(gang))

    def of_alone(self, kin: Kin, title: str, *, waits: bool) -> Bar | None:
        """Return what is in the way of a pod on its own."""
        standing = self._view.standings.of_alone(kin)
        queue = self._view.queues.bar(standing.queue)
        if queue is None and waits:
            queue = self._permit(kin.namespace, standing.queue)
        found = [*self._of_kin(kin, title, None), *_of_class(standing, title)] if waits else []
        return _worst((*found, *((queue,) if queue else ())))

    def of_growth(self, gang: Gang) -> Bar | None:
        """Return what is in the way of more than a gang needs that has begun.

        What it has it keeps, whatever becomes of its permission, of the topology it requires or of
        its priority class: it may be made whole again.
        """
        if gang.group is None or not has_begun(gang):
            return None
        return _worst(self._of_start(gang, self._view.standings.of_gang(gang)))

    def _of_start(self, gang: Gang, standing: Standing) -> Iterator[Bar]:
        """Yield what is in the way of the start of a gang, and later of more than it needs."""
        if self._view.queues.bar(standing.queue) is None:  # of one that is none nothing is asked
            permit = self._permit(gang.key.namespace, standing.queue)
            if permit is not None:
                yield permit
        if gang.topology_bar is not None:
            yield gang.topology_bar
        yield from _of_class(standing, "")

    def _permit(self, namespace: str, queue: str) -> Bar | None:
        return self._view.permits.bar(Key(namespace, queue), self._view.queues.access(queue))

    def _all(self, gang: Gang) -> Iterator[Bar]:
        view = self._view
        if gang.bar is not None:
            yield gang.bar
        if gang.group is None:
            return
        standing = view.standings.of_gang(gang)
        queue = view.queues.bar(standing.queue)
        if queue is not None:
            yield queue
        if not has_begun(gang):
            yield from self._of_start(gang, standing)
        yield from self._after(gang)
        kins, roll = view.roll.kins, view.roll
        waiting = [
            kin
            for kin in gang.kins
            if kins.counts[kin.number]
            and (view.heads[kin.number, WAITING] or kin.foreseen)
            and self._of_kin(kin, "", gang)
        ]
        for kin in sorted(waiting, key=lambda kin: roll.age(roll.first(kin))):
            yield from self._of_kin(kin, roll.title(kin), gang)
        for kin, _ in gang.later.values():
            yield from self._of_kin(kin, roll.title(kin), gang)

    def _of_kin(self, kin: Kin, title: str, gang: Gang | None) -> list[Bar]:
        """Return why pods cannot be placed, whatever room there is, under this title."""
        codes = self._view.codes
        excess = kin.recipe.excess
        if excess is None and self._view.roll.kins.is_left_out[kin.number]:
            excess = self._left_out(kin, gang)
        if excess is not None:
            return [Bar(Verdict.MISCONFIGURED, f"{title}: {excess}", _WAKES_ON)]
        found = [*_of_pods(kin, codes.asks.sharing.get(kin.number)), *codes.claims.bars(kin)]
        found += self._of_label(kin, gang)
        return [bar._replace(message=title + bar.message) for bar in found]

    def _of_label(self, kin: Kin, gang: Gang | None) -> Iterator[Bar]:
        """Yield why pods may not be in the queue that they would be in without their group.

        A user can take the group away while they run.
        """
        named, group = kin.labels.get(QUEUE, ""), gang.group if gang else None
        if group is None or named in {"", group.spec.queue}:
            return
        bar = self._view.queues.bar(named) or self._permit(kin.namespace, named)
        if bar is not None:
            why = f" has the label {QUEUE}: {named}, and its PodGroup is in {group.spec.queue}: "
            yield bar._replace(message=why + bar.message)

    def _left_out(self, kin: Kin, gang: Gang | None) -> str:
        """Return what is told of pods that are left out: the same of all pods of a gang."""
        if gang is None:
            return too_much(kin.namespace, (kin,))
        told = self._crowded.get(gang.key)
        if told is None:
            counts = self._view.roll.kins.counts
            some = [it for it in gang.kins if counts[it.number]]
            later = [it for it, _ in gang.later.values()]
            told = too_much(kin.namespace, dict.fromkeys((*some, *later)))
            self._crowded[gang.key] = told
        return told


def _of_class(standing: Standing, title: str) -> Iterator[Bar]:
    """Yield that a priority class was chosen that may not be."""
    if standing.refusal:
        message = f"{title}: {standing.refusal}" if title else standing.refusal
        yield Bar(Verdict.MISCONFIGURED, message, frozenset({"groups"}))


def _of_pods(kin: Kin, shares: Sharing | None) -> Iterator[Bar]:
    """Yield why pods cannot be placed, whatever room there is."""
    fault = kin.recipe.demand_fault()
    if fault:
        yield Bar(Verdict.MISCONFIGURED, f": {fault}", _WAKES_ON)
    if shares is not None:
        yield _not_yet(f" has the annotation {shares.annotation}: it shares a GPU")
    if kin.spec.resource_claims:
        names = ", ".join(claim.name for claim in kin.spec.resource_claims)
        yield _not_yet(f" has spec.resourceClaims ({names}): it uses a ResourceClaim")


def has_begun(gang: Gang) -> bool:
    """Say whether some of a gang runs, or is on its way to another place; a promise is no start."""
    return gang.comes_back or any(gang.of(leaf, THERE) for leaf in gang.minima)


def _worst(bars: Iterable[Bar]) -> Bar | None:
    return min(bars, key=lambda bar: bar.verdict, default=None)


def is_silent(bar: Bar | None) -> bool:
    """Say whether a unit asks for nothing: it is not its turn, or it cannot be meant."""
    return bar is not None and bar.verdict in _SILENT


def _not_yet(message: str) -> Bar:
    full = f"{message}, and this scheduler cannot place that yet"
    return Bar(Verdict.NO_NODE_MATCHES, full, _WAKES_ON)
