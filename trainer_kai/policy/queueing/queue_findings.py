"""What is probably wrong with the numbers of a queue, before pods wait for it.

Admission reports these findings when a queue is written, and the doctor for all queues. Messages
have the numbers in the unit of the field (GPU, millicores, megabytes) and say what to write.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Final, NamedTuple

from trainer_kai.api.kai_kinds import ABSENT_RESOURCE, QueueResource, QueueResources, QueueSpec
from trainer_kai.api.text import counted, listed_names
from trainer_kai.policy.finding import Finding

_UNLIMITED: Final = Decimal(-1)
_ZERO: Final = Decimal(0)
_MILLI: Final = 1000  # millicores of a CPU
_MIN_MEMORY: Final = 1000  # megabytes; a smaller number was probably meant as gigabytes
_BYTES: Final = Decimal(2**30)  # as megabytes that is 10^15 bytes
_MEGABYTE: Final = 10**6
_HUGE: Final = Decimal(10**15)  # no sum of such numbers leaves the range of a decimal
_MAX_EXPONENT: Final = 15
_MAX_NAMED: Final = 3
_NAMES: Final = {"gpu": "GPU", "cpu": "CPU", "memory": "memory"}
_UNITS: Final = {"gpu": "GPU", "cpu": "millicores", "memory": "megabytes"}


class QueueFindingCode(StrEnum):
    ABSENT = "absent"  # a resource that is left out: quota 0 and limit 0
    NO_LIMIT = "no-limit"  # the limit is 0 or absent, beside a quota or a weight
    QUOTA_OVER_LIMIT = "quota-over-limit"
    NEGATIVE = "negative"  # below zero, and not -1
    WEIGHT = "weight"  # a weight below zero, which counts as 1
    UNIT = "unit"  # CPU that looks like cores; memory that looks like gigabytes or bytes
    UNLIMITED = "unlimited"  # a GPU quota of -1 beside siblings or below a parent with a quota
    UNLIMITED_BESIDE = "unlimited-beside"  # a quota of -1 CPU or memory, beside GPU quotas
    LIMIT_OVER_PARENT = "limit-over-parent"
    SIBLINGS_OVER_PARENT = "siblings-over-parent"  # the queue and its siblings, seen from the queue
    CHILDREN_OVER_QUOTA = "children-over-quota"  # the same, seen from the parent
    CHILD_OVER_LIMIT = "child-over-limit"  # a child's limit above its own, seen from the parent


class _Share(NamedTuple):
    """A bound below zero is -1, and a number that is not finite is 0."""

    kind: str  # gpu, cpu or memory
    written: QueueResource
    quota: Decimal
    limit: Decimal

    def finding(
        self, field: str, message: str, code: QueueFindingCode, *, blocks: bool = False
    ) -> Finding:
        path = f"spec.resources.{self.kind}{field and '.'}{field}"
        return Finding(path, message, blocks=blocks, code=code)

    def amount(self, number: Decimal) -> str:
        return f"{_text(number)} {_UNITS[self.kind]}"


class _LevelShares(NamedTuple):
    limits: Mapping[str, Decimal]
    quota: Decimal  # the sum
    owners: list[str]  # the queues with a quota above zero that is not unlimited


class QueueLevel:
    """The queues below one parent, or all queues without a parent.

    What their findings have in common is calculated once, however many queues there are.
    """

    def __init__(self, specs: Mapping[str, QueueSpec]) -> None:
        self._shares: Final = {kind: _level_shares(kind, specs) for kind in _NAMES if specs}

    def shares(self, kind: str) -> _LevelShares:
        return self._shares.get(kind, _NO_SHARES)


_NO_SHARES: Final = _LevelShares({}, _ZERO, [])
_NO_LEVEL: Final = QueueLevel({})


class QueueRelatives(NamedTuple):
    parent: QueueSpec | None = None  # None: there is none, or it is unknown
    level: QueueLevel = _NO_LEVEL  # the queue itself, and its siblings
    children: QueueLevel = _NO_LEVEL


def queue_relatives(name: str, spec: QueueSpec, queues: Mapping[str, QueueSpec]) -> QueueRelatives:
    """Return the queues around a queue, which itself need not be one of them."""
    others = {it: other for it, other in queues.items() if it != name}
    return QueueRelatives(
        parent=others.get(spec.parent_queue),
        level=QueueLevel(
            {name: spec}
            | {it: s for it, s in others.items() if s.parent_queue == spec.parent_queue}
        ),
        children=QueueLevel({it: s for it, s in others.items() if s.parent_queue == name}),
    )


def all_queue_relatives(queues: Mapping[str, QueueSpec]) -> dict[str, QueueRelatives]:
    """One pass over the queues of each level."""
    by_parent: dict[str, dict[str, QueueSpec]] = {}
    for name, spec in queues.items():
        by_parent.setdefault(spec.parent_queue, {})[name] = spec
    levels = {parent: QueueLevel(specs) for parent, specs in by_parent.items()}
    return {
        name: QueueRelatives(
            queues.get(spec.parent_queue) if spec.parent_queue != name else None,
            levels[spec.parent_queue],
            levels.get(name, _NO_LEVEL),
        )
        for name, spec in queues.items()
    }


def _level_shares(kind: str, specs: Mapping[str, QueueSpec]) -> _LevelShares:
    shares = {name: _share(kind, spec) for name, spec in specs.items()}
    owners = sorted(name for name, it in shares.items() if it.quota > 0)
    limits = {name: it.limit for name, it in shares.items()}
    return _LevelShares(limits, sum((shares[it].quota for it in owners), _ZERO), owners)


def queue_findings(spec: QueueSpec, relatives: QueueRelatives) -> tuple[Finding, ...]:
    return tuple(_findings(spec, relatives))


def _findings(spec: QueueSpec, relatives: QueueRelatives) -> Iterator[Finding]:
    for kind in _NAMES:
        share = _share(kind, spec)
        if share.written is ABSENT_RESOURCE:
            yield _absent(share)
            continue
        yield from _sign_findings(share)
        yield from _unit_findings(share)
        yield from _limit_findings(share)
        yield from _parent_findings(share, spec.parent_queue, relatives)
        yield from _children_findings(share, relatives.children)
    yield from _unlimited_beside(spec, relatives.level.shares("gpu").owners)


def _unlimited_beside(spec: QueueSpec, owners: list[str]) -> Iterator[Finding]:
    """Yield that sibling queues with GPUs cannot reclaim the CPUs or the memory of GPU nodes."""
    shares = [_share(kind, spec) for kind in ("cpu", "memory")]
    unlimited = [it for it in shares if it.quota == _UNLIMITED]
    siblings = len(owners) - (_share("gpu", spec).quota > 0)
    if not unlimited or not siblings:
        return
    names = " and ".join(_NAMES[it.kind] for it in unlimited)
    queues = counted(siblings, "sibling queue")
    units = " and ".join(_UNITS[it.kind] for it in unlimited)
    message = (
        f"the quota of {names} is unlimited (-1), so {queues} with a GPU quota can reclaim none of "
        f"it on GPU nodes. Write the {units} that nodes have beside the GPUs of this queue, or 0"
    )
    yield unlimited[0].finding("quota", message, QueueFindingCode.UNLIMITED_BESIDE)


def _share(kind: str, spec: QueueSpec) -> _Share:
    written: QueueResource = getattr(spec.resources or QueueResources(), kind)
    return _Share(kind, written, _bound(written.quota), _bound(written.limit))


def _bound(number: Decimal) -> Decimal:
    if not number.is_finite():
        return _ZERO
    return _UNLIMITED if number < 0 else min(number, _HUGE)


def _absent(share: _Share) -> Finding:
    name = _NAMES[share.kind]
    remedy = (
        f"Write {share.kind}: {{quota: 0, limit: -1, overQuotaWeight: 1}}, with another quota if "
        f"the queue has GPUs: the {_UNITS[share.kind]} that nodes have beside them"
    )
    if share.kind == "gpu":
        remedy = (
            "Write gpu: {quota: 0, limit: -1, overQuotaWeight: 1}, or gpu: {limit: 0} if intended"
        )
    message = (
        f"is absent, which means quota 0 and limit 0: no pod that requests {name} starts in this "
        f"queue. {remedy}"
    )
    return share.finding("", message, QueueFindingCode.ABSENT, blocks=True)


def _sign_findings(share: _Share) -> Iterator[Finding]:
    for field, number in (("quota", share.written.quota), ("limit", share.written.limit)):
        if number.is_finite() and number < 0 and number != _UNLIMITED:
            message = f"{_text(number)} counts as -1 (unlimited). Write -1, or a number from 0 on"
            yield share.finding(field, message, QueueFindingCode.NEGATIVE)
    weight = share.written.over_quota_weight
    if weight.is_finite() and weight < 0:
        message = (
            f"{_text(weight)} counts as 1: -1 does not mean unlimited here. "
            "Write 1, or another number from 0 on"
        )
        yield share.finding("overQuotaWeight", message, QueueFindingCode.WEIGHT)


def _unit_findings(share: _Share) -> Iterator[Finding]:
    for field, number in (("quota", share.quota), ("limit", share.limit)):
        message = ""
        if share.kind == "cpu" and 0 < number < _MILLI:
            message = (
                f"{share.amount(number)} are {_text(number / _MILLI)} CPU. "
                f"Write {_text(number * _MILLI)} for {_text(number)} CPU"
            )
        elif share.kind == "memory" and 0 < number < _MIN_MEMORY:
            message = (
                f"{share.amount(number)} are {_text(number / 1000)} GB. "
                f"Write {_text(number * 1000)} for {_text(number)} GB"
            )
        elif share.kind == "memory" and number >= _BYTES:
            megabytes = (number / _MEGABYTE).to_integral_value("ROUND_CEILING")
            message = (
                f"{share.amount(number)} look like bytes. The unit is megabytes of 10^6 bytes: "
                f"write {_text(megabytes)} for {_text(number)} bytes, or -1 for unlimited"
            )
        if message:
            yield share.finding(field, message, QueueFindingCode.UNIT)


def _limit_findings(share: _Share) -> Iterator[Finding]:
    name, limit, quota = _NAMES[share.kind], share.limit, share.quota
    weight = share.written.over_quota_weight
    if limit == 0 and (quota != 0 or (weight.is_finite() and weight != 0)):
        message = (
            f"the limit is 0 or absent, so no pod that requests {name} starts in this queue. "
            "Write -1 for no limit of its own"
        )
        yield share.finding("limit", message, QueueFindingCode.NO_LIMIT, blocks=True)
    elif 0 < limit < quota:
        message = (
            f"the quota of {share.amount(quota)} is above the limit of {share.amount(limit)}, and "
            f"the queue gets no more than its limit. Write limit: {_text(quota)} or more, or "
            f"quota: {_text(limit)} or less"
        )
        yield share.finding("quota", message, QueueFindingCode.QUOTA_OVER_LIMIT)


def _parent_findings(share: _Share, parent: str, relatives: QueueRelatives) -> Iterator[Finding]:
    level = relatives.level.shares(share.kind)
    above = _share(share.kind, relatives.parent) if relatives.parent else None
    if share.kind == "gpu" and share.quota == _UNLIMITED:
        yield from _unlimited(share, level.owners, above)
    if above is None:
        return
    name = f"parent queue {parent}"
    if share.quota > 0 and 0 <= above.quota < level.quota:
        message = (
            f"the child queues of {name} have quotas of {share.amount(level.quota)} in "
            f"total with this one, and the parent has a quota of {share.amount(above.quota)}. "
            "Raise the quota of the parent, or lower this one"
        )
        yield share.finding("quota", message, QueueFindingCode.SIBLINGS_OVER_PARENT)
    if above.limit == 0 and share.limit != 0:
        message = (
            f"{name} has a limit of 0 {_UNITS[share.kind]}, so no pod that requests "
            f"{_NAMES[share.kind]} starts in this queue. Write a limit for the parent, or -1"
        )
        yield share.finding("limit", message, QueueFindingCode.LIMIT_OVER_PARENT, blocks=True)
    elif 0 < above.limit < share.limit:
        message = (
            f"the limit of {share.amount(share.limit)} is above the limit of "
            f"{share.amount(above.limit)} of {name}, which counts for this queue too. Lower this "
            "limit, or raise that of the parent"
        )
        yield share.finding("limit", message, QueueFindingCode.LIMIT_OVER_PARENT)


def _unlimited(share: _Share, owners: list[str], above: _Share | None) -> Iterator[Finding]:
    if owners:
        message = (
            f"the quota is unlimited (-1), and sibling queues have a GPU quota "
            f"({listed_names(owners, _MAX_NAMED)}): they can reclaim no GPU from this queue. Write "
            "the number of GPUs that the queue owns, or 0"
        )
    elif above is not None and above.quota > 0:
        message = (
            "the quota is unlimited (-1), and the parent queue has a GPU quota of "
            f"{share.amount(above.quota)}. Write the number of GPUs that the queue owns, or 0"
        )
    else:
        return
    yield share.finding("quota", message, QueueFindingCode.UNLIMITED)


def _children_findings(share: _Share, children: QueueLevel) -> Iterator[Finding]:
    level = children.shares(share.kind)
    if 0 <= share.quota < level.quota:
        message = (
            f"the child queues have quotas of {share.amount(level.quota)} in total, and this queue "
            f"has a quota of {share.amount(share.quota)}. Write {_text(level.quota)} or more, or "
            "lower the quotas of the child queues"
        )
        yield share.finding("quota", message, QueueFindingCode.CHILDREN_OVER_QUOTA)
    above = sorted(name for name, limit in level.limits.items() if limit > share.limit >= 0)
    if above:
        message = (
            f"the limit of {share.amount(share.limit)} counts for the child queues too, and some "
            f"have a larger limit of their own: {listed_names(above, _MAX_NAMED)}"
        )
        yield share.finding("limit", message, QueueFindingCode.CHILD_OVER_LIMIT)


def _text(number: Decimal) -> str:
    """Without an exponent, unless the number is too long for that."""
    if not number or abs(number.adjusted()) > _MAX_EXPONENT:
        return str(number)[:_MAX_EXPONENT] if number else "0"
    return f"{number.normalize():f}"
