"""Effective values where KAI's CRD admits a value without a meaning, and the warnings about them.

KAI checks neither signs nor durations. An invalid value must not make a queue or PodGroup unusable,
so the most likely intended value is used: for a quota or a limit below 0 it is -1 (unlimited), and
for a weight below 0 it is 1, the default. KAI itself treats weights below 0, and GPU and CPU limits
below -1, as 0.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.podgroup import PodGroupSpec
from trainer_kai.api.queue import QueueResource, QueueResources, QueueSpec
from trainer_kai.errors import FieldError

_UNBOUND: Final = Decimal(-1)
_WEIGHT: Final = Decimal(1)  # of -1, which users write for "unlimited" in all three fields
_NO_DURATION: Final = "it counts as absent"


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
        if text:
            try:
                nanoseconds(text)
            except DurationError as error:
                yield FieldError(path, f"{error}: {_NO_DURATION}")


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
    """Return the effective number; *below_zero* is the one for a negative number."""
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
