"""How many plans the events of one namespace may start for nothing.

A user who relabels waiting pods without end would have the scheduler plan without end, and the
gangs of others would wait for these plans. So a plan that only events of some namespaces started,
and that changed nothing, is charged to these. A namespace that has used up its budget starts a plan
a few times a second, and of long plans one after a pause of three times their length; its events
are in every plan that anything else starts. A bind gives the namespace of the pod one plan back:
the pods of a gang come one by one, and the plans before the last of them change nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from trainer_kai.kube.process.tasks import within
from trainer_kai.service.clock import Clock

_INTERVAL_S: Final = 0.3  # between two plans for nothing, in the long run
_PAUSE_FACTOR: Final = 3  # the same for long plans, as a multiple of their length
_BURST: Final = 8  # of such plans that may follow each other at once
_TOO_MANY: Final = 4096  # namespaces, before all that are within their budget are forgotten
_NEGLIGIBLE_S: Final = 1e-4  # a shorter time is none


class PlanBudget:
    """The budget of each namespace; the namespace "" has no limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._interval_s = _INTERVAL_S
        self._used: dict[str, tuple[float, float]] = {}  # how many plans, and when that was so
        # Namespaces with events that may not start a plan yet, and from when on they may.
        self._deferred_until_s: dict[str, float] = {}
        self._has_earlier_deferred = asyncio.Event()

    def may_start(self, namespace: str, uncharged: int) -> bool:
        """Say whether an event of a namespace may start a plan; if not, defer it.

        *uncharged* are plans that the namespace has started and that are not complete.
        """
        if not namespace:
            return True
        now_s = self._clock.monotonic_s()
        excess = self._used_now(namespace, now_s) + uncharged - (_BURST - 1)
        if excess <= 0:
            return True
        until_s = now_s + excess * self._interval_s
        if until_s < min(self._deferred_until_s.values(), default=until_s + 1):
            self._has_earlier_deferred.set()
        self._deferred_until_s.setdefault(namespace, until_s)
        return False

    def forget_deferred(self) -> None:
        """Forget all deferred events: a plan begins, and sees their objects."""
        self._deferred_until_s.clear()

    async def deferred_namespaces(self) -> set[str]:
        """Wait until deferred events may start a plan; return their namespaces."""
        while True:
            self._has_earlier_deferred.clear()
            now_s = self._clock.monotonic_s()
            deferred = self._deferred_until_s
            due = {it for it, at_s in deferred.items() if at_s - now_s < _NEGLIGIBLE_S}
            if due:
                for namespace in due:
                    del deferred[namespace]
                return due
            earlier = self._has_earlier_deferred.wait()
            if deferred:
                with suppress(TimeoutError):
                    await within(self._clock, min(deferred.values()) - now_s, earlier)
            else:
                await earlier

    def charge(self, namespaces: Iterable[str], plan_s: float) -> None:
        """Charge a plan that changed nothing to the namespaces whose events started it."""
        self._interval_s = max(_INTERVAL_S, _PAUSE_FACTOR * plan_s)
        now_s = self._clock.monotonic_s()
        for namespace in namespaces:
            used = min(self._used_now(namespace, now_s) + 1, _BURST)
            self._used[namespace] = used, now_s
        if len(self._used) > _TOO_MANY:
            names = [*self._used]
            self._used = {
                name: self._used[name] for name in names if self._used_now(name, now_s) > 0
            }

    def refund(self, plans: Mapping[str, int]) -> None:
        """Give namespaces so many plans back."""
        now_s = self._clock.monotonic_s()
        for namespace, count in plans.items():
            used = self._used_now(namespace, now_s) - count
            if used > 0:
                self._used[namespace] = used, now_s
            else:
                self._used.pop(namespace, None)

    def _used_now(self, namespace: str, now_s: float) -> float:
        used, at_s = self._used.get(namespace, (0.0, now_s))
        return max(0.0, used - (now_s - at_s) / self._interval_s)
