"""How many plans the events of one namespace may start for nothing.

A user who relabels waiting pods without end would have the scheduler plan without end, and the
gangs of others would wait for these plans. So a plan that only events of some namespaces started,
and that changed nothing, is charged to these. A namespace that has used up its budget starts a plan
a few times a second; its events are in every plan that anything else starts. A plan that does
something for a namespace gives it its budget back: the pods of a gang come one by one, and the
plans before the last of them change nothing.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["PlanBudget"]

_INTERVAL_S: Final = 0.3  # between two plans for nothing, in the long run
_BURST: Final = 8  # of such plans that may follow each other at once
_TOO_MANY: Final = 4096  # namespaces, before those that are within their budget are forgotten


class PlanBudget:
    """The budget of each namespace."""

    def __init__(self) -> None:
        self._paid_until_s: dict[str, float] = {}

    def delay_s(self, namespace: str, now_s: float) -> float:
        """Return for how long an event of a namespace may start no plan; 0 if it may now."""
        paid_until_s = self._paid_until_s.get(namespace, now_s)
        return max(0.0, paid_until_s - now_s - (_BURST - 1) * _INTERVAL_S)

    def refund(self, namespaces: Iterable[str]) -> None:
        """Give namespaces their whole budget back: a plan has done something for them."""
        for namespace in namespaces:
            self._paid_until_s.pop(namespace, None)

    def charge(self, namespaces: Iterable[str], now_s: float) -> None:
        """Charge a plan that changed nothing to the namespaces whose events started it."""
        for namespace in namespaces:
            paid_until_s = max(self._paid_until_s.get(namespace, now_s), now_s)
            self._paid_until_s[namespace] = paid_until_s + _INTERVAL_S
        if len(self._paid_until_s) > _TOO_MANY:
            self._paid_until_s = {
                name: until_s for name, until_s in self._paid_until_s.items() if until_s > now_s
            }
