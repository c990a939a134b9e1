"""How many plans the events of one namespace may start for nothing.

A user who relabels waiting pods without end would have the scheduler plan without end, and the
gangs of others would wait for these plans. So a plan that only events of some namespaces started,
and that changed nothing, is charged to these. A namespace that has used up its budget starts a plan
a few times a second, and of long plans one after a pause of three times their length; its events
are in every plan that anything else starts. A bind gives the namespace of the pod one plan back:
the pods of a gang come one by one, and the plans before the last of them change nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["PlanBudget"]

_INTERVAL_S: Final = 0.3  # between two plans for nothing, in the long run
_PAUSE_FACTOR: Final = 3  # the same for long plans, as a multiple of their length
_BURST: Final = 8  # of such plans that may follow each other at once
_TOO_MANY: Final = 4096  # namespaces, before those that are within their budget are forgotten


class PlanBudget:
    """The budget of each namespace."""

    def __init__(self) -> None:
        self._interval_s = _INTERVAL_S
        self._used: dict[str, tuple[float, float]] = {}  # how many plans, and when that was so

    def delay_s(self, namespace: str, now_s: float, uncharged: int) -> float:
        """Return for how long an event of a namespace may start no plan; 0 if it may now.

        *uncharged* are plans that it has started and that are not complete.
        """
        excess = self._used_now(namespace, now_s) + uncharged - (_BURST - 1)
        return max(0.0, excess * self._interval_s)

    def charge(self, namespaces: Iterable[str], now_s: float, plan_s: float) -> None:
        """Charge a plan that changed nothing to the namespaces whose events started it."""
        self._interval_s = max(_INTERVAL_S, _PAUSE_FACTOR * plan_s)
        for namespace in namespaces:
            used = min(self._used_now(namespace, now_s) + 1, _BURST)
            self._used[namespace] = used, now_s
        if len(self._used) > _TOO_MANY:
            names = [*self._used]
            self._used = {
                name: self._used[name] for name in names if self._used_now(name, now_s) > 0
            }

    def refund(self, plans: Mapping[str, int], now_s: float) -> None:
        """Give namespaces so many plans back."""
        for namespace, count in plans.items():
            used = self._used_now(namespace, now_s) - count
            if used > 0:
                self._used[namespace] = used, now_s
            else:
                self._used.pop(namespace, None)

    def _used_now(self, namespace: str, now_s: float) -> float:
        used, at_s = self._used.get(namespace, (0.0, now_s))
        return max(0.0, used - (now_s - at_s) / self._interval_s)
