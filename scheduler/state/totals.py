"""What some pods have, and what they ask for: that as well."""

from collections import Counter
from collections.abc import Iterable

from scheduler.state.news import OVER
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.demand import Amounts, demand

__all__ = ["use_of"]


def use_of(pods: Iterable[Pod]) -> tuple[Amounts, Amounts]:
    """Return what pods that are not over have, and what they ask for."""
    allocated: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for pod in pods:
        if pod.status.phase in OVER:
            continue
        try:
            amounts = demand(pod.spec)
        except QuantityError:
            continue  # it cannot be placed, and its unit is told why
        requested.update(amounts)
        if pod.spec.node_name:
            allocated.update(amounts)
    return allocated, requested
