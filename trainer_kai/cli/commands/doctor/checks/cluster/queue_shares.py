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
    all_queue_relatives,
    queue_findings,
)

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
    relatives = all_queue_relatives(specs)
    return [
        QueueFinding(name, finding)
        for name in sorted(specs)
        for finding in queue_findings(specs[name], relatives[name])
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
    """Warn if queues cannot reclaim from the default queue, as in earlier versions.

    Reclaim compares two queues of one level: the ancestors of both below their common ancestor.
    """
    path = _ancestors(default, queues)
    below = dict(zip(path[1:], path, strict=False))  # an ancestor -> the queue of the path below
    owners: dict[str, list[str]] = {}
    for name in sorted(queues):
        if name not in path and _gpu_quota(queues[name]) > 0:
            common = next((it for it in _ancestors(name, queues) if it in path), "")
            compared = below.get(common, "") if common else path[-1]
            if compared and _gpu_quota(queues[compared]) < 0:
                owners.setdefault(compared, []).append(name)
    for name in sorted(owners, key=path.index):
        observed = (
            f"the GPU quota of {name} is unlimited (-1), as in earlier versions: "
            f"{listed(owners[name])} cannot reclaim from workloads that name no queue"
        )
        yield warning(check, observed, f"`kubectl patch queue {name} --type merge -p {_PATCH}`")


def _ancestors(name: str, queues: Mapping[str, Queue]) -> list[str]:
    """Return a queue and the queues above it, up to the top or an unknown parent."""
    path = dict[str, None]()
    while name in queues and name not in path:
        path[name] = None
        name = queues[name].spec.parent_queue
    return [*path]


def _code(it: QueueFinding) -> str:
    return it.finding.code


def _observed(finding: Finding) -> str:
    return finding.message.partition(". ")[0]


def _remedy(finding: Finding) -> str:
    remedy = finding.message.partition(". ")[2]
    return remedy[:1].lower() + remedy[1:]


def _gpu_quota(queue: Queue) -> float:
    return float((queue.spec.resources or QueueResources()).gpu.quota)
