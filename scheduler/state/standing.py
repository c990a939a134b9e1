"""How units stand to each other: their queue, how much they matter, and who may be preempted."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from scheduler.state.gang import Gang
from scheduler.state.kin import Kin
from trainer_kai.api.names import PREEMPTIBILITY, PRIORITY_CLASS_NAME, QUEUE
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.wishes import PREEMPTIBILITIES

__all__ = ["Standing", "Standings", "default_priority"]

_WITHOUT_CLASS: Final = 50
_PREEMPTIBLE_BELOW: Final = 100


class Standing(NamedTuple):
    """Of one unit; no queue is the queue of nobody."""

    queue: str
    priority: int
    is_preemptible: bool


def default_priority(classes: Mapping[str, PriorityClass]) -> int:
    """Return the priority of who names no class, or one that there is not."""
    # Of several default classes Kubernetes takes the one with the smallest value.
    defaults = (one.value for one in classes.values() if one.global_default)
    return min(defaults, default=_WITHOUT_CLASS)


class Standings:
    """Of gangs, and of pods on their own."""

    def __init__(self, classes: Mapping[str, PriorityClass], default_queue: str) -> None:
        self._classes: Final = classes
        self._default_queue: Final = default_queue
        self._default: Final = default_priority(classes)

    def of_gang(self, gang: Gang) -> Standing:
        """Return what a group says; pods of one that does not exist have no queue."""
        if gang.group is None:
            return self._standing("", "", "")
        spec = gang.group.spec
        return self._standing(spec.queue, spec.priority_class_name, spec.preemptibility)

    def of_alone(self, kin: Kin) -> Standing:
        """Return what pods without a group say themselves."""
        labels = kin.labels
        return self._standing(
            labels.get(QUEUE) or self._default_queue,
            labels.get(PRIORITY_CLASS_NAME) or kin.spec.priority_class_name,
            labels.get(PREEMPTIBILITY, ""),
        )

    def _standing(self, queue: str, class_name: str, wish: str) -> Standing:
        known = self._classes.get(class_name)
        priority = self._default if known is None else known.value
        if wish in PREEMPTIBILITIES:
            return Standing(queue, priority, wish == PREEMPTIBILITIES[0])
        return Standing(queue, priority, priority < _PREEMPTIBLE_BELOW)
