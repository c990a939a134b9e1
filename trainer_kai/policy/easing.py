"""What of a PodGroup changes while its pods are on nodes: what makes it easier to evict. Pure.

Queue, priority and whether it can be preempted were judged when it started, and decide whether it
gives back what was lent to it. Labels of JobSets are written by their users. So while a pod is on a
node

- the queue and the node pool stay;
- a PriorityClass may follow that has no larger value than that of now and the default one: the
  scheduler counts the class of now as the default one where a label may not choose it;
- what can be preempted stays so, by its field and by its class: a class alone is no proof that it
  cannot be, for the same reason;
- the time that it may run in part becomes no longer than it is (none said is KAI's).

All else follows at once, and all of it when no pod is on a node.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.names import (
    NODE_POOL,
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    STALENESS_GRACE_PERIOD,
)
from trainer_kai.api.wishes import PREEMPTIBILITIES
from trainer_kai.policy.classes import PREEMPTIBLE_BELOW, Choosable
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.groups import Fields, Mode

__all__ = ["Eased", "eased"]

Spec: TypeAlias = Mapping[str, Any]

_KAI_GRACE: Final = "60s"
_FIXED: Final = PREEMPTIBILITIES[1]


class Eased(NamedTuple):
    """What to write, and what of it waits until no pod is on a node."""

    fields: Fields
    kept: tuple[Finding, ...] = ()


def eased(
    wanted: Fields, labels: Mapping[str, str], spec: Spec, classes: Choosable, mode: Mode
) -> Eased:
    """Return the fields of a PodGroup with pods on nodes, which has these labels and this spec."""
    wished, kept = wanted["spec"], list[Finding]()
    for name, (path, is_easier) in _OF_SPEC.items():
        if mode == "external" and name == "stalenessGracePeriod":
            continue  # there none is without end: to say one makes it shorter
        asked = wished.get(name)
        if asked != spec.get(name) and not is_easier(spec, wished, classes):
            kept.append(_kept(path, name, spec.get(name), asked))
            wished = _with(wished, name, spec.get(name))
    meta, marks = wanted["metadata"], wanted["metadata"]["labels"]
    if marks.get(NODE_POOL) != labels.get(NODE_POOL):
        asked = marks.get(NODE_POOL)
        kept.append(_kept(f"labels[{NODE_POOL}]", "node pool", labels.get(NODE_POOL), asked))
    stays = (NODE_POOL, QUEUE) if wished["queue"] != wanted["spec"]["queue"] else (NODE_POOL,)
    for name in stays:
        marks = _with(marks, name, labels.get(name))
    fields = {**wanted, "metadata": {**meta, "labels": marks}, "spec": wished}
    return Eased(fields, tuple(kept))


def _with(given: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return fields of which one has a value, or is not there."""
    rest = {key: it for key, it in given.items() if key != name}
    return rest if value is None else {**rest, name: value}


def _kept(path: str, name: str, there: Any, asked: Any) -> Finding:
    was, new = ("none" if it is None else repr(it) for it in (there, asked))
    message = (
        f"while pods run their PodGroup keeps {name} {was}; {new} counts once no pod of it is on a"
        " node: suspend the TrainJob, and resume it"
    )
    return Finding(f"metadata.{path}", message)


def _has_no_queue(there: Spec, _wished: Spec, _classes: Choosable) -> bool:
    return not there.get("queue")


def _is_smaller(there: Spec, wished: Spec, classes: Choosable) -> bool:
    now, then = (classes.value(it.get("priorityClassName", "")) for it in (there, wished))
    return then <= min(now, classes.default)


def _is_preemptible_still(there: Spec, wished: Spec, classes: Choosable) -> bool:
    if there.get("preemptibility") == _FIXED:
        return True
    said = wished.get("preemptibility")
    if said in PREEMPTIBILITIES:
        return bool(said != _FIXED)
    return classes.value(wished.get("priorityClassName", "")) < PREEMPTIBLE_BELOW


def _is_no_longer(there: Spec, wished: Spec, _classes: Choosable) -> bool:
    return "stalenessGracePeriod" not in wished or _grace(wished) <= _grace(there)


def _grace(spec: Spec) -> float:
    try:
        length = nanoseconds(spec.get("stalenessGracePeriod") or _KAI_GRACE)
    except DurationError:
        return nanoseconds(_KAI_GRACE)
    return length if length >= 0 else math.inf


_OF_SPEC: Final[Mapping[str, tuple[str, Callable[[Spec, Spec, Choosable], bool]]]] = (
    MappingProxyType(
        {
            "queue": (f"labels[{QUEUE}]", _has_no_queue),
            "priorityClassName": (f"labels[{PRIORITY_CLASS_NAME}]", _is_smaller),
            "preemptibility": (f"labels[{PREEMPTIBILITY}]", _is_preemptible_still),
            "stalenessGracePeriod": (f"annotations[{STALENESS_GRACE_PERIOD}]", _is_no_longer),
        }
    )
)
