"""What some pods have, and what they ask for: that as well."""

from collections import Counter
from collections.abc import Iterable

from scheduler.state.news import TERMINAL_PHASES
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.demand import ResourceAmounts, pod_requests

__all__ = ["resource_use"]


def resource_use(pods: Iterable[Pod]) -> tuple[ResourceAmounts, ResourceAmounts]:
    """Return what pods that are not over have, and what they ask for."""
    allocated: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for pod in pods:
        if pod.status.phase in TERMINAL_PHASES:
            continue
        try:
            amounts = pod_requests(pod.spec)
        except QuantityError:
            continue  # it cannot be placed, and its unit is told why
        requested.update(amounts)
        if pod.spec.node_name:
            allocated.update(amounts)
    return allocated, requested
