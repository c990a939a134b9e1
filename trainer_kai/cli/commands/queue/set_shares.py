"""`trainer-kai queue set`: change quota, limit, weight, priority or parent of a queue.

It says which running work can be reclaimed after the change and could not before. Quotas of CPU and
memory follow the GPU quota as in `queue create`, unless they are unlimited.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from trainer_kai.api.gpu_requests import gpu_count
from trainer_kai.api.kai_kinds import PodGroup, Queue, QueueResources
from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.api.resources import NODES, PODGROUPS, PRIORITY_CLASSES, QUEUES
from trainer_kai.api.text import first_listed
from trainer_kai.cli.commands.queue.create import beside_gpus, parent_notes
from trainer_kai.cli.commands.queue.write_plan import (
    QueueReader,
    QueueWrite,
    WritePlan,
    existing_queue,
)
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.request import ListTarget, Patch, PatchKind
from trainer_kai.policy.queueing.priority_classes import (
    PREEMPTIBLE_BELOW,
    SelectablePriorityClasses,
)

_THOUSAND: Final = 1000
_UNLIMITED: Final = -1
_MAX_NAMED: Final = 8


class QueueChange(NamedTuple):
    """None leaves a field as it is; an empty parent removes it."""

    name: str
    gpu_quota: float | None = None
    gpu_limit: float | None = None
    weight: float | None = None
    priority: int | None = None
    parent: str | None = None


async def plan_set(reader: QueueReader, change: QueueChange) -> WritePlan:
    if not any(it is not None for it in change[1:]):
        message = (
            "nothing to change: set --gpu-quota, --gpu-limit, --weight, --priority or --parent"
        )
        raise ConfigError([FieldError(f"queue {change.name}", message)])
    queues = await reader.queues()
    queue = existing_queue(queues, change.name)
    notes: list[str] = []
    if change.parent:
        existing_queue(queues, change.parent)
        _check_parent(queues, change)
        notes += await parent_notes(reader, queues, change.parent)
    spec, outcome = await _spec(reader, queue, change)
    if change.gpu_quota is not None:
        notes += await _cluster_notes(reader, change.gpu_quota)
    notes += _limit_notes(queue, change)
    outcome += await _consequences(reader, queue, change)
    text = ", ".join(_set_fields(change))
    write = QueueWrite(QUEUES, queue.metadata.key, Patch(PatchKind.MERGE, {"spec": spec}), text)
    return WritePlan((write,), tuple(outcome), tuple(notes))


def _check_parent(queues: Mapping[str, Queue], change: QueueChange) -> None:
    path, above = [change.name], change.parent or ""
    while above in queues and above not in path:
        path.append(above)
        above = queues[above].spec.parent_queue
    if above == change.name:
        circle = " → ".join([*path, above])
        message = f"queue {change.name} would be its own ancestor: {circle}. Name another parent"
        raise ConfigError([FieldError("--parent", message)])


async def _spec(
    reader: QueueReader, queue: Queue, change: QueueChange
) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of the patch, and what to say about them."""
    fields = {
        "quota": change.gpu_quota,
        "limit": change.gpu_limit,
        "overQuotaWeight": change.weight,
    }
    gpu = {name: it for name, it in fields.items() if it is not None}
    resources: dict[str, Any] = {"gpu": gpu} if gpu else {}
    said = []
    if change.gpu_quota is not None:
        now = queue.spec.resources or QueueResources()
        beside, text = await beside_gpus(reader, change.gpu_quota)
        for name, known, number in (
            ("cpu", now.cpu.quota, beside.millicores),
            ("memory", now.memory.quota, beside.megabytes),
        ):
            if known >= 0 and number >= 0:
                resources[name] = {"quota": number}
        if len(resources) > 1:
            said.append(text)
    spec: dict[str, Any] = {"resources": resources} if resources else {}
    if change.priority is not None:
        spec["priority"] = change.priority
    if change.parent is not None:
        spec["parentQueue"] = change.parent or None
    return spec, said


def _set_fields(change: QueueChange) -> Iterator[str]:
    names = ("GPU quota", "GPU limit", "weight", "priority", "parent")
    for name, value in zip(names, change[1:], strict=True):
        if value is not None:
            yield f"{name} is {_text(value)}"


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value or "removed"
    return "unlimited" if value == _UNLIMITED else f"{value:g}"


async def _cluster_notes(reader: QueueReader, quota: float) -> list[str]:
    """Return a note about a quota that all nodes together do not have."""
    try:
        nodes = await reader.list_all(ListTarget(NODES))
    except ConfigError:
        return []
    total = sum(gpu_count(it.status.allocatable) for it in nodes) / _THOUSAND
    if quota <= total:
        return []
    return [
        (
            f"the quota of {quota:g} GPU is more than all nodes have ({total:g} GPU): its owner "
            "may rely on more than there is"
        )
    ]


def _limit_notes(queue: Queue, change: QueueChange) -> list[str]:
    """Return a note about a quota that the queue's own limit cuts."""
    if change.gpu_quota is None and change.gpu_limit is None:
        return []
    now = (queue.spec.resources or QueueResources()).gpu
    quota = float(now.quota) if change.gpu_quota is None else change.gpu_quota
    limit = float(now.limit) if change.gpu_limit is None else change.gpu_limit
    if not 0 <= limit < quota:
        return []
    return [
        (
            f"the quota of {quota:g} GPU is above the limit of {limit:g} GPU: the queue gets no "
            "more than its limit (--gpu-limit changes it)"
        )
    ]


async def _consequences(reader: QueueReader, queue: Queue, change: QueueChange) -> list[str]:
    """Return which running work the change exposes, and that nothing starts above the limit."""
    used = gpu_count(queue.status.allocated) / _THOUSAND
    name, said = queue.metadata.name, []
    if change.gpu_limit is not None and 0 <= change.gpu_limit < used:
        said.append(
            f"queue {name} uses {used:g} GPU: what runs stays, and nothing starts until it uses "
            f"less than its limit of {change.gpu_limit:g} GPU"
        )
    resources = queue.spec.resources or QueueResources()
    before, after = float(resources.gpu.quota), change.gpu_quota
    if after is None or after < 0 or after >= min(used, before if before >= 0 else used):
        return said
    exposed = min(used, before if before >= 0 else used) - after
    begin = (
        f"queue {name} uses {used:g} GPU: {exposed:g} GPU of it were within its quota, and can now "
        "be reclaimed by queues below their fair share"
    )
    victims = await _reclaimed_first(reader, queue, used - after)
    said.append(f"{begin}{': ' if victims else ''}{victims}")
    return said


async def _reclaimed_first(reader: QueueReader, queue: Queue, over_quota: float) -> str:
    """Return the preemptible PodGroups that lose first, as many as are over the quota."""
    try:
        podgroups = await reader.list_all(ListTarget(PODGROUPS))
        classes = await reader.list_all(ListTarget(PRIORITY_CLASSES))
    except ConfigError:
        return ""
    priorities = SelectablePriorityClasses({it.metadata.name: it for it in classes})
    own = [it for it in podgroups if it.spec.queue == queue.metadata.name]
    named, left = [], over_quota
    for group in _victims(own, priorities):
        if left <= 0:
            break
        gpus = gpu_count(group.status.resources_status.allocated) / _THOUSAND
        named.append(f"{group.metadata.key} ({gpus:g} GPU)")
        left -= gpus
    return first_listed(named, _MAX_NAMED)


def _victims(
    podgroups: Iterable[PodGroup], priorities: SelectablePriorityClasses
) -> list[PodGroup]:
    """Return the preemptible PodGroups with GPUs: lowest priority first, then the newest."""
    preemptible = [
        it
        for it in podgroups
        if gpu_count(it.status.resources_status.allocated) and _is_preemptible(it, priorities)
    ]
    newest_first = sorted(preemptible, key=lambda it: it.metadata.creation_timestamp, reverse=True)
    return sorted(newest_first, key=lambda it: priorities.value(it.spec.priority_class_name))


def _is_preemptible(group: PodGroup, priorities: SelectablePriorityClasses) -> bool:
    if group.spec.preemptibility in PREEMPTIBILITIES:
        return group.spec.preemptibility == PREEMPTIBILITIES[0]
    return priorities.value(group.spec.priority_class_name) < PREEMPTIBLE_BELOW
