"""Quotas, limits and weights of queues that are probably not as intended.

The rules are those of admission, which reports them when a queue is written.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from trainer_kai.api.queue import Queue, QueueResources
from trainer_kai.cli.commands.doctor.facts import listed
from trainer_kai.cli.commands.doctor.finding import CheckFinding, warning
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.queueing.queue_findings import (
    QueueFindingCode,
    queue_findings,
    queue_relatives,
)

__all__ = ["QueueFinding", "share_findings", "share_warnings", "unlimited_default"]

_MAX_QUEUES: Final = 3  # in one warning
_SEEN_FROM_THE_OTHER_SIDE: Final = (  # each is reported for the parent, or for the child
    QueueFindingCode.SIBLINGS_OVER_PARENT,
    QueueFindingCode.CHILD_OVER_LIMIT,
)
_PATCH: Final = (
    """'{"spec":{"resources":{"gpu":{"quota":0},"cpu":{"quota":0},"memory":{"quota":0}}}}'"""
)


class QueueFinding(NamedTuple):
    """A finding of a queue."""

    queue: str
    finding: Finding


def share_findings(queues: Mapping[str, Queue]) -> list[QueueFinding]:
    """Return what is probably wrong with the numbers of queues, each once."""
    specs = {name: it.spec for name, it in queues.items()}
    return [
        QueueFinding(name, finding)
        for name, spec in sorted(specs.items())
        if spec.resources is not None  # without it, the scheduler warns already
        for finding in queue_findings(spec, queue_relatives(name, spec, specs))
        if finding.code not in _SEEN_FROM_THE_OTHER_SIDE
    ]


def share_warnings(check: str, findings: list[QueueFinding]) -> Iterator[CheckFinding]:
    """Yield a warning for each rule, with the first queues that break it."""
    for _, found in groupby(sorted(findings, key=_code), key=_code):
        same_rule = [*found]
        observed = (f"queue {name}: {it.path}: {_observed(it)}" for name, it in same_rule)
        name, finding = same_rule[0]
        remedy = f"queue {name}: {_remedy(finding)}"
        yield warning(check, listed(observed, _MAX_QUEUES), remedy)


def unlimited_default(
    check: str, default: str, queues: Mapping[str, Queue]
) -> Iterator[CheckFinding]:
    """Warn if no queue can reclaim from the default queue, as in earlier versions."""
    path, name = list[str](), default
    while name in queues and name not in path:
        path.append(name)
        name = queues[name].spec.parent_queue
    unlimited = [name for name in path if _gpu_quota(queues[name]) < 0]
    owners = sorted(name for name, it in queues.items() if _gpu_quota(it) > 0 and name not in path)
    if unlimited and owners:
        observed = (
            f"the GPU quota of {listed(unlimited)} is unlimited (-1), as in earlier versions: "
            f"{listed(owners)} cannot reclaim from workloads that name no queue"
        )
        commands = (f"`kubectl patch queue {name} --type merge -p {_PATCH}`" for name in unlimited)
        yield warning(check, observed, " and ".join(commands))


def _code(it: QueueFinding) -> str:
    return it.finding.code


def _observed(finding: Finding) -> str:
    return finding.message.partition(". ")[0]


def _remedy(finding: Finding) -> str:
    remedy = finding.message.partition(". ")[2]
    return remedy[:1].lower() + remedy[1:]


def _gpu_quota(queue: Queue) -> float:
    return float((queue.spec.resources or QueueResources()).gpu.quota)
