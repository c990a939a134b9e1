"""What is known to be in the way of a unit before anybody looks for room."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.model import Bar, Bools, Verdict
from scheduler.state.gangs import Gang, Gangs
from scheduler.state.kin import Kin
from scheduler.state.queues import QueueRows
from scheduler.state.roll import WAITING, Roll
from scheduler.state.sharing import Sharing
from scheduler.state.standing import Standings

__all__ = ["Bars", "KinRule"]

KinRule: TypeAlias = Callable[[Kin], Iterable[Bar]]
GangRule: TypeAlias = Callable[[Gang], Iterable[Bar]]

_WAKES_ON: Final = frozenset({"pods"})
_SILENT: Final = (Verdict.MISCONFIGURED, Verdict.WAITING_FOR_STAGE)


class Bars:
    """Of several the smallest verdict is told, of equal ones that of the oldest pods."""

    def __init__(self, roll: Roll, queues: QueueRows, standings: Standings) -> None:
        self._kins: Final = roll.kins
        self._queues: Final = queues
        self._standings: Final = standings
        waiting = np.unique(roll.kin[roll.state == WAITING])
        self._is_waiting: Final = frozenset(waiting.tolist())
        self._of_kin: Final[dict[int, tuple[Bar, ...]]] = {}
        self._of_gang: Final[dict[int, Bar | None]] = {}

    def read(
        self, gangs: Gangs, sharing: dict[int, Sharing], of_claims: KinRule, after: GangRule
    ) -> None:
        """Work out what is wrong with pods, and what gangs have to wait for."""
        later = {number for gang in gangs.gangs for number, _ in gang.later.values()}
        ours = set(np.flatnonzero(gangs.is_ours).tolist()) & self._is_waiting
        for number in sorted(ours | later):
            kin = self._kins[number]
            found = [*_of_pods(kin, sharing.get(number)), *of_claims(kin)]
            if found:
                self._of_kin[number] = tuple(found)
        for gang in gangs.gangs:
            counting = [number for number in gang.kins if gangs.counts[number]]
            self._of_gang[gang.number] = _worst(self._all(gang, counting, after))

    def of_gang(self, gang: Gang) -> Bar | None:
        """Return what is in the way of a gang."""
        return self._of_gang[gang.number]

    def wanting(self, gangs: Gangs) -> Bools:
        """Return whose waiting pods count for their queue, [kin]."""
        wanting = gangs.is_alone.copy()
        for number in np.flatnonzero(wanting).tolist():
            wanting[number] = not _is_silent(self.of_alone(number))
        for gang in gangs.gangs:
            if self.is_heard(gang):
                wanting[gang.kins] = gangs.counts[gang.kins]
        return wanting

    def is_heard(self, gang: Gang) -> bool:
        """Say whether a gang asks for room."""
        return not gang.is_suspended and not _is_silent(self._of_gang[gang.number])

    def of_alone(self, kin: int) -> Bar | None:
        """Return what is in the way of pods on their own."""
        queue = self._queues.bar(self._standings.of_alone(kin).queue)
        return _worst((*self._of_kin.get(kin, ()), *((queue,) if queue else ())))

    def _all(self, gang: Gang, counting: list[int], after: GangRule) -> Iterator[Bar]:
        if gang.bar is not None:
            yield gang.bar
        if gang.group is None:
            return
        queue = self._queues.bar(self._standings.of_gang(gang).queue)
        if queue is not None:
            yield queue
        yield from after(gang)
        for number in (*counting, *(number for number, _ in gang.later.values())):
            yield from self._of_kin.get(number, ())


def _of_pods(kin: Kin, shares: Sharing | None) -> Iterator[Bar]:
    """Yield why pods cannot be placed, whatever room there is."""
    fault = kin.demand_fault()
    if fault:
        yield Bar(Verdict.MISCONFIGURED, f"{kin.title}: {fault}", _WAKES_ON)
    if shares is not None:
        yield _not_yet(f"{kin.title} has the annotation {shares.annotation}: it shares a GPU")
    if kin.spec.resource_claims:
        names = ", ".join(claim.name for claim in kin.spec.resource_claims)
        yield _not_yet(f"{kin.title} has spec.resourceClaims ({names}): it uses a ResourceClaim")


def _worst(bars: Iterable[Bar]) -> Bar | None:
    return min(bars, key=lambda bar: bar.verdict, default=None)


def _is_silent(bar: Bar | None) -> bool:
    """Say whether a unit asks for nothing: it is not its turn, or it cannot be meant."""
    return bar is not None and bar.verdict in _SILENT


def _not_yet(message: str) -> Bar:
    full = f"{message}, and this scheduler cannot place that yet"
    return Bar(Verdict.NO_NODE_MATCHES, full, _WAKES_ON)
