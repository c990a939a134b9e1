"""The values that workloads request by labels and annotations, and which of them are invalid."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.names import (
    BATCH_MIN_MEMBER,
    LAST_CHECKPOINT,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    SKIP_PODGROUPER,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.syntax import dns_subdomain_fault, label_name_fault
from trainer_kai.errors import FieldError, FieldWarning

PREEMPTIBILITIES: Final = ("preemptible", "non-preemptible")

_COUNT: Final = re.compile("[1-9][0-9]{0,8}")
_TIME: Final = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


def is_count(text: str) -> bool:
    """Say whether a text is a positive integer within the limit."""
    return bool(_COUNT.fullmatch(text))


def duration_fault(text: str, *, negative: bool = False) -> str | None:
    """Return what is wrong with a duration; a negative one can mean "never"."""
    try:
        length = nanoseconds(text)
    except DurationError as error:
        return str(error)
    return None if length >= 0 or negative else f"{text!r} must not be negative"


def preemptibility_fault(text: str) -> str | None:
    """Return what is wrong with a preemptibility."""
    right = " or ".join(map(repr, PREEMPTIBILITIES))
    return None if text in PREEMPTIBILITIES else f"{text!r} must be {right}"


def requested_label_faults(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield what is wrong with the values of labels."""
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
    LAST_CHECKPOINT: _time,
}
