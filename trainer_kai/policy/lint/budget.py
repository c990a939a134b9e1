"""A limit on the work that lint does for one TrainJob: other reviews wait in the meantime.

The parts are counted before they are checked, so a TrainJob that is too large is reported and not
checked. A check above the limit is skipped and reports nothing.
"""

from collections.abc import Iterable, Iterator

from trainer_kai.api.affinity import Affinity
from trainer_kai.api.container import Container
from trainer_kai.api.jobset import JobSetSpec
from trainer_kai.api.pod import PodSpec

MOST_PARTS = 25_000
_CONTAINER = 20  # a container takes as much work as this many ports
_AMOUNT = 10


class LintBudget:
    """The steps that are left for one TrainJob."""

    def __init__(self, steps: int = 40_000) -> None:
        self._left = steps

    def spend(self, steps: int) -> bool:
        """Take so many steps from the budget; return whether there were enough."""
        if steps > self._left:
            return False
        self._left -= steps
        return True


def count_spec_parts(specs: Iterable[JobSetSpec]) -> int:
    """Return the number of parts to check; counting stops above the limit."""
    count = 0
    for spec in specs:
        for job in spec.replicated_jobs:
            for more in _pod_parts(job.template.spec.template.spec):
                count += more
                if count > MOST_PARTS:
                    return count
    return count


def _pod_parts(pod: PodSpec) -> Iterator[int]:
    yield _CONTAINER + len(pod.volumes) + len(pod.node_selector) + len(pod.tolerations)
    yield len(pod.scheduling_gates)
    yield from map(_container_parts, (*pod.init_containers, *pod.containers))
    if pod.affinity is not None:
        yield from _affinity_parts(pod.affinity)


def _container_parts(container: Container) -> int:
    resources = container.resources
    amounts = len(resources.requests) + len(resources.limits)
    return _CONTAINER + len(container.ports) + _AMOUNT * amounts


def _affinity_parts(affinity: Affinity) -> Iterator[int]:
    required = affinity.node_affinity.required if affinity.node_affinity else None
    for term in required.node_selector_terms if required else ():
        yield 1
        for requirement in (*term.match_expressions, *term.match_fields):
            yield 4 + len(requirement.values)
