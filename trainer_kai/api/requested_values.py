"""Values that users write into queues, PodGroups, labels and annotations: which are invalid.

KAI checks neither signs nor durations of its objects. An invalid value must not make a queue or
PodGroup unusable, so the most likely intended value is used: for a quota or a limit below 0 it is
-1 (unlimited), and for a weight below 0 it is 1, the default. KAI itself treats weights below 0,
and GPU and CPU limits below -1, as 0.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from trainer_kai.api.kai_kinds import PodGroupSpec, QueueResource, QueueResources, QueueSpec
from trainer_kai.api.names import (
    BATCH_MIN_MEMBER,
    LAST_CHECKPOINT,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    SEGMENT_PREFERRED,
    SEGMENT_REQUIRED,
    SKIP_PODGROUPER,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.quantity import DurationError, nanoseconds
from trainer_kai.api.syntax import dns_subdomain_fault, label_name_fault
from trainer_kai.errors import FieldError, FieldWarning

_UNBOUND: Final = Decimal(-1)
_WEIGHT: Final = Decimal(1)  # of -1, which users write for "unlimited" in all three fields
_NO_DURATION: Final = "it counts as absent"
PREEMPTIBILITIES: Final = ("preemptible", "non-preemptible")
_COUNT: Final = re.compile("[1-9][0-9]{0,8}")
_TIME: Final = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


def effective_queue(spec: QueueSpec) -> tuple[QueueSpec, tuple[FieldError, ...]]:
    """Return a queue with its effective values, and a fault for each value that differs."""
    warnings: list[FieldError] = []
    if spec.resources is None:
        warnings.append(FieldError("spec.resources", "is absent: the queue may use no resources"))
    resources_in_spec = spec.resources or QueueResources()
    resources = QueueResources(
        gpu=_effective_resource(resources_in_spec.gpu, "spec.resources.gpu", warnings),
        cpu=_effective_resource(resources_in_spec.cpu, "spec.resources.cpu", warnings),
        memory=_effective_resource(resources_in_spec.memory, "spec.resources.memory", warnings),
    )
    preempt = _effective_min_runtime(spec.preempt_min_runtime, "spec.preemptMinRuntime", warnings)
    reclaim = _effective_min_runtime(spec.reclaim_min_runtime, "spec.reclaimMinRuntime", warnings)
    if not warnings:
        return spec, ()
    effective = replace(
        spec, resources=resources, preempt_min_runtime=preempt, reclaim_min_runtime=reclaim
    )
    return effective, tuple(warnings)


def podgroup_warnings(spec: PodGroupSpec) -> Iterator[FieldError]:
    """Yield the invalid durations of a PodGroup; a negative one means none, or for ever."""
    for path, text in (
        ("spec.preemptionDelay", spec.preemption_delay),
        ("spec.stalenessGracePeriod", spec.staleness_grace_period),
    ):
        fault = duration_fault(text, negative=True) if text else None
        if fault:
            yield FieldError(path, f"{fault}: {_NO_DURATION}")


def _effective_resource(
    resource: QueueResource, path: str, warnings: list[FieldError]
) -> QueueResource:
    return QueueResource(
        quota=_effective_number(resource.quota, f"{path}.quota", _UNBOUND, warnings),
        over_quota_weight=_effective_number(
            resource.over_quota_weight, f"{path}.overQuotaWeight", _WEIGHT, warnings
        ),
        limit=_effective_number(resource.limit, f"{path}.limit", _UNBOUND, warnings),
    )


def _effective_number(
    number: Decimal, path: str, below_zero: Decimal, warnings: list[FieldError]
) -> Decimal:
    """*below_zero* is the effective number for a negative one."""
    if not number.is_finite():
        warnings.append(FieldError(path, f"{number} is not a number: it counts as 0"))
        return Decimal(0)
    if number >= 0 or number == below_zero:
        return number
    right = "0 or more, or -1 (unlimited)" if below_zero == _UNBOUND else "0 or more"
    warnings.append(FieldError(path, f"{number} must be {right}: it counts as {below_zero}"))
    return below_zero


def _effective_min_runtime(text: str, path: str, warnings: list[FieldError]) -> str:
    if not text:
        return ""
    try:
        length = nanoseconds(text)
    except DurationError as error:
        warnings.append(FieldError(path, f"{error}: {_NO_DURATION}"))
        return ""
    if length >= 0:
        return text
    warnings.append(FieldError(path, f"{text!r} must not be negative: it counts as 0s"))
    return "0s"


def is_count(text: str) -> bool:
    return bool(_COUNT.fullmatch(text))


def duration_fault(text: str, *, negative: bool = False) -> str | None:
    """Return what is wrong with a duration; a negative one can mean "never"."""
    try:
        length = nanoseconds(text)
    except DurationError as error:
        return str(error)
    return None if length >= 0 or negative else f"{text!r} must not be negative"


def preemptibility_fault(text: str) -> str | None:
    right = " or ".join(map(repr, PREEMPTIBILITIES))
    return None if text in PREEMPTIBILITIES else f"{text!r} must be {right}"


def requested_label_faults(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    yield from _faults(_LABELS, labels, path)


def requested_annotation_faults(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield what is wrong with the values of annotations, one by one and together.

    Shares of GPUs are requested by annotations of pods alone: see `gpu_share_faults`.
    """
    yield from _faults(_ANNOTATIONS, annotations, path)
    for name in (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED):
        if name in annotations and TOPOLOGY not in annotations:
            yield FieldWarning(f"{path}[{name}]", f"can only be set together with {TOPOLOGY}")


def _faults(
    rules: Mapping[str, Callable[[str], str | None]], values: Mapping[str, str], path: str
) -> Iterator[FieldError]:
    for name, rule in rules.items():
        fault = rule(values[name]) if name in values else None
        if fault:
            yield FieldWarning(f"{path}[{name}]", fault)


def _queue(text: str) -> str | None:
    return dns_subdomain_fault(text) if text else None  # an empty value names no queue


def _count(text: str) -> str | None:
    return None if is_count(text) else f"{text!r} must be an integer of 1 or more"


def _flag(text: str) -> str | None:
    return None if text in {"true", "false"} else f"{text!r} must be 'true' or 'false'"


def _time(text: str) -> str | None:
    if _TIME.fullmatch(text):
        return None
    return f"{text!r} must be a time such as '2026-01-31T12:00:00Z'"


def _grace(text: str) -> str | None:
    return duration_fault(text, negative=True)


_LABELS: Final[Mapping[str, Callable[[str], str | None]]] = {
    QUEUE: _queue,
    PREEMPTIBILITY: preemptibility_fault,
    PRIORITY_CLASS_NAME: dns_subdomain_fault,
}
_ANNOTATIONS: Final[Mapping[str, Callable[[str], str | None]]] = {
    BATCH_MIN_MEMBER: _count,
    PREEMPTION_DELAY: duration_fault,
    STALENESS_GRACE_PERIOD: _grace,
    SKIP_PODGROUPER: _flag,
    TOPOLOGY: dns_subdomain_fault,
    TOPOLOGY_REQUIRED: label_name_fault,
    TOPOLOGY_PREFERRED: label_name_fault,
    SEGMENT_REQUIRED: label_name_fault,
    SEGMENT_PREFERRED: label_name_fault,
    LAST_CHECKPOINT: _time,
}
