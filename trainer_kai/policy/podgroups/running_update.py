"""Which fields of a PodGroup may change while its pods are on nodes. Pure.

Queue, priority and preemptibility decide whether a running PodGroup can be evicted, and users can
change the labels of their JobSets. So while a pod is on a node, a change may only make eviction
easier:

- the queue and the node pool do not change;
- the PriorityClass may change to one with a value that is not larger than the current and the
  default one: the scheduler treats a class that a label may not choose as the default one;
- a preemptible PodGroup remains preemptible, by its field and by its class; for the same reason, a
  class alone does not prove that a PodGroup is non-preemptible;
- the staleness grace period does not become longer (without one, KAI's default counts).

All other fields change at once. When no pod is on a node, every field changes.
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
from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.podgroups.manifests import GroupingMode, ManifestFields
from trainer_kai.policy.queueing.priority_classes import (
    PREEMPTIBLE_BELOW,
    SelectablePriorityClasses,
)

Spec: TypeAlias = Mapping[str, Any]

_KAI_GRACE: Final = "60s"
_NON_PREEMPTIBLE: Final = PREEMPTIBILITIES[1]


class RunningUpdate(NamedTuple):
    """The fields to write, and the changes that wait until no pod is on a node."""

    fields: ManifestFields
    deferred: tuple[Finding, ...] = ()


def running_update(
    wanted: ManifestFields,
    labels: Mapping[str, str],
    spec: Spec,
    priority_classes: SelectablePriorityClasses,
    mode: GroupingMode,
) -> RunningUpdate:
    """Return the update of a PodGroup with pods on nodes; *labels* and *spec* are its own."""
    spec_wanted, deferred = wanted["spec"], list[Finding]()
    for name, (path, is_easier) in _SPEC_RULES.items():
        if mode == "external" and name == "stalenessGracePeriod":
            continue  # without one it never ends in this mode, so any value is shorter
        requested = spec_wanted.get(name)
        if requested != spec.get(name) and not is_easier(spec, spec_wanted, priority_classes):
            deferred.append(_deferred_finding(path, name, spec.get(name), requested))
            spec_wanted = _with(spec_wanted, name, spec.get(name))
    meta, labels_wanted = wanted["metadata"], wanted["metadata"]["labels"]
    if labels_wanted.get(NODE_POOL) != labels.get(NODE_POOL):
        requested = labels_wanted.get(NODE_POOL)
        deferred.append(
            _deferred_finding(f"labels[{NODE_POOL}]", "node pool", labels.get(NODE_POOL), requested)
        )
    fixed_labels = (
        (NODE_POOL, QUEUE) if spec_wanted["queue"] != wanted["spec"]["queue"] else (NODE_POOL,)
    )
    for name in fixed_labels:
        labels_wanted = _with(labels_wanted, name, labels.get(name))
    fields = {**wanted, "metadata": {**meta, "labels": labels_wanted}, "spec": spec_wanted}
    return RunningUpdate(fields, tuple(deferred))


def _with(fields: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return the fields with another value for one field; None removes the field."""
    rest = {key: it for key, it in fields.items() if key != name}
    return rest if value is None else {**rest, name: value}


def _deferred_finding(path: str, name: str, current: Any, requested: Any) -> Finding:
    was, new = ("none" if it is None else repr(it) for it in (current, requested))
    message = (
        f"{name} remains {was} while pods of the PodGroup run. To use {new}, suspend the TrainJob "
        "and resume it"
    )
    return Finding(f"metadata.{path}", message)


def _has_no_queue(
    current: Spec, _spec_wanted: Spec, _priority_classes: SelectablePriorityClasses
) -> bool:
    return not current.get("queue")


def _is_no_higher_class(
    current: Spec, spec_wanted: Spec, priority_classes: SelectablePriorityClasses
) -> bool:
    now, then = (
        priority_classes.value(it.get("priorityClassName", "")) for it in (current, spec_wanted)
    )
    return then <= min(now, priority_classes.default)


def _stays_preemptible(
    current: Spec, spec_wanted: Spec, priority_classes: SelectablePriorityClasses
) -> bool:
    if current.get("preemptibility") == _NON_PREEMPTIBLE:
        return True
    preemptibility = spec_wanted.get("preemptibility")
    if preemptibility in PREEMPTIBILITIES:
        return bool(preemptibility != _NON_PREEMPTIBLE)
    return priority_classes.value(spec_wanted.get("priorityClassName", "")) < PREEMPTIBLE_BELOW


def _is_grace_no_longer(
    current: Spec, spec_wanted: Spec, _priority_classes: SelectablePriorityClasses
) -> bool:
    return "stalenessGracePeriod" not in spec_wanted or _grace(spec_wanted) <= _grace(current)


def _grace(spec: Spec) -> float:
    try:
        length = nanoseconds(spec.get("stalenessGracePeriod") or _KAI_GRACE)
    except DurationError:
        return nanoseconds(_KAI_GRACE)
    return length if length >= 0 else math.inf


_SPEC_RULES: Final[
    Mapping[str, tuple[str, Callable[[Spec, Spec, SelectablePriorityClasses], bool]]]
] = MappingProxyType(
    {
        "queue": (f"labels[{QUEUE}]", _has_no_queue),
        "priorityClassName": (f"labels[{PRIORITY_CLASS_NAME}]", _is_no_higher_class),
        "preemptibility": (f"labels[{PREEMPTIBILITY}]", _stays_preemptible),
        "stalenessGracePeriod": (f"annotations[{STALENESS_GRACE_PERIOD}]", _is_grace_no_longer),
    }
)
