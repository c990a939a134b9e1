"""Whether what starts together is more than a queue may ever have: its own or one above it.

A limit holds for everybody, a quota for what cannot be preempted. Queues count CPU, memory and
devices; parts of devices are left out here.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from trainer_kai.api.names import CPU, MEMORY, MIG_PREFIX
from trainer_kai.api.quantity import spell_bytes, spell_milli
from trainer_kai.api.queue import QueueResource, QueueResources, QueueSpec
from trainer_kai.policy.demand import Amounts
from trainer_kai.policy.finding import Code, Finding

__all__ = ["over_limits", "over_quotas"]

_GPU: Final = "GPU"
_MIG: Final = re.compile(re.escape(MIG_PREFIX) + r"([1-9][0-9]?)g\.[0-9]{1,4}gb")
_UNITS: Final = {CPU: 1, MEMORY: 10**9, _GPU: 1000}  # thousandths in what a queue counts in
_DEEPEST: Final = 100


class _Bound(NamedTuple):
    """What one queue may have of one resource, in thousandths."""

    queue: str
    name: str
    most: Decimal


def over_limits(
    path: str, needs: Amounts, gpus: tuple[str, ...], queue: str, queues: Mapping[str, QueueSpec]
) -> Iterator[Finding]:
    """Yield the first limit on the way up that is smaller than what starts together asks for."""
    counted = _counted(needs, gpus)
    for bound in _bounds(queue, queues, "limit"):
        asked = counted.get(bound.name, 0)
        if asked > bound.most:
            message = (
                f"what starts together asks for {_told(bound.name, asked)}, and "
                f"{_named(bound.queue, queue)} may have {_most(bound)} at most; "
                "ask for that or less, or name another queue"
            )
            yield Finding(path, message, blocks=True, code=Code.OVER_LIMIT)
            return


def over_quotas(
    path: str, needs: Amounts, gpus: tuple[str, ...], queue: str, queues: Mapping[str, QueueSpec]
) -> Iterator[Finding]:
    """Yield the same of quotas, for what cannot be preempted."""
    counted = _counted(needs, gpus)
    for bound in _bounds(queue, queues, "quota"):
        asked = counted.get(bound.name, 0)
        if asked > bound.most:
            message = (
                f"it cannot be preempted and asks for {_told(bound.name, asked)}, and the quota of "
                f"{_named(bound.queue, queue)} is {_most(bound)}; "
                "ask for that or less, or let it be preempted"
            )
            yield Finding(path, message, blocks=True, code=Code.OVER_QUOTA)
            return


def _counted(needs: Amounts, gpus: tuple[str, ...]) -> Mapping[str, int]:
    """Return what queues count, in thousandths."""
    found = {CPU: needs.get(CPU, 0), MEMORY: needs.get(MEMORY, 0), _GPU: 0}
    for name, amount in needs.items():
        slices = _MIG.fullmatch(name)
        if name in gpus:
            found[_GPU] += amount
        elif slices:
            found[_GPU] += amount * int(slices[1])
    return found


def _bounds(queue: str, queues: Mapping[str, QueueSpec], field: str) -> Iterator[_Bound]:
    """Yield what bounds a queue, and those above it as far as they are known."""
    name = queue
    for _ in range(_DEEPEST):
        spec = queues.get(name)
        if spec is None:
            return
        resources = spec.resources or QueueResources()
        for kind, share in (
            (_GPU, resources.gpu),
            (CPU, resources.cpu),
            (MEMORY, resources.memory),
        ):
            number = _number(share, field)
            if number is not None:
                yield _Bound(name, kind, number * _UNITS[kind])
        name = spec.parent_queue


def _number(share: QueueResource, field: str) -> Decimal | None:
    """Return a bound; None where there is none, or one that cannot be meant."""
    number = share.limit if field == "limit" else share.quota
    return number if number.is_finite() and number >= 0 else None


def _named(name: str, queue: str) -> str:
    return f"queue {name}" if name == queue else f"queue {name} above {queue}"


def _told(name: str, thousandths: int) -> str:
    if name == MEMORY:
        return f"{spell_bytes(-(-thousandths // 1000))} memory"
    return f"{spell_milli(thousandths)} {name if name == _GPU else 'CPU'}"


def _most(bound: _Bound) -> str:
    return _told(bound.name, int(bound.most))
