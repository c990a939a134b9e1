"""Minimum runtimes: how long a running PodGroup is protected where its queue does not say."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.core.model.plugins import MinRuntime

_RESOLVE: Final = "reclaimResolveMethod"
_PREEMPT: Final = "defaultPreemptMinRuntime"
_RECLAIM: Final = "defaultReclaimMinRuntime"
ARGUMENTS: Final = (_PREEMPT, _RECLAIM, _RESOLVE)

_RESOLVE_METHODS: Final = ("lca", "queue")  # the first is KAI's choice
_MILLISECONDS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_DURATION_PART: Final = re.compile(r"([0-9]{1,9})(ms|[smhdw])")
_MAX_LENGTH: Final = 64


def min_runtime(arguments: Mapping[str, str]) -> MinRuntime:
    """Return the configured minimum runtimes; invalid values are ignored."""
    return MinRuntime(
        preempt_s=_seconds(arguments.get(_PREEMPT, "")) or 0,
        reclaim_s=_seconds(arguments.get(_RECLAIM, "")) or 0,
        from_victim_queue=arguments.get(_RESOLVE) == "queue",
    )


def argument_errors(arguments: Mapping[str, str]) -> Iterator[str]:
    """Yield invalid values, with the valid ones."""
    for name in (_PREEMPT, _RECLAIM):
        if name in arguments and _seconds(arguments[name]) is None:
            valid = 'must be a duration such as "90s", "10m" or "2d"'
            yield f"{name} of minruntime {valid}, not {arguments[name]!r}"
    if arguments.get(_RESOLVE, "lca") not in _RESOLVE_METHODS:
        valid = f'must be "{_RESOLVE_METHODS[0]}", the default, or "{_RESOLVE_METHODS[1]}"'
        yield f"{_RESOLVE} of minruntime {valid}, not {arguments[_RESOLVE]!r}"


def _seconds(text: str) -> int | None:
    """Return a duration in whole seconds, rounded up; None for what is none."""
    parts = _DURATION_PART.findall(text[:_MAX_LENGTH])
    if text == "0":
        return 0
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return -(-sum(int(number) * _MILLISECONDS[unit] for number, unit in parts) // 1000)
