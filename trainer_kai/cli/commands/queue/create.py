"""`trainer-kai queue create`: create a queue, by default closed."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trainer_kai.api.decode import decode, encode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS
from trainer_kai.api.queue import Queue
from trainer_kai.api.resources import QUEUES
from trainer_kai.api.syntax import dns_subdomain_fault, label_value_fault
from trainer_kai.api.validate import queue_faults
from trainer_kai.cli.commands.queue.execute import QueueReader
from trainer_kai.cli.commands.queue.usage import PODGROUPS
from trainer_kai.cli.commands.queue.write_plan import QueueWrite, WritePlan, existing_queue
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, grant_command

__all__ = ["NewQueue", "plan_create"]

_EXISTS: Final = (
    "already exists with other settings: `trainer-kai queue close` and `open` change its access, "
    "`kubectl edit queue` changes its quota, limit, weight and parent"
)
_UNLIMITED: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


class NewQueue(NamedTuple):
    """The queue to create."""

    name: str
    parent: str
    gpu_quota: float
    gpu_limit: float
    weight: float
    access: QueueAccessMode

    def body(self) -> dict[str, Any]:
        """Return the object."""
        gpu = {"quota": self.gpu_quota, "limit": self.gpu_limit, "overQuotaWeight": self.weight}
        spec: dict[str, Any] = {"resources": {"gpu": gpu, "cpu": _UNLIMITED, "memory": _UNLIMITED}}
        if self.parent:
            spec["parentQueue"] = self.parent
        return {
            "apiVersion": QUEUES.api_version,
            "kind": QUEUES.kind,
            "metadata": {"name": self.name, "annotations": {ACCESS: str(self.access)}},
            "spec": spec,
        }


async def plan_create(reader: QueueReader, new: NewQueue) -> WritePlan:
    """Return the write that creates a queue; raise for a queue that could not be used."""
    body, path = new.body(), f"queue {new.name}"
    wanted = decode(Queue, encode(body))
    faults = [*queue_faults(wanted)]
    # A label of pods names their queue.
    if fault := dns_subdomain_fault(new.name) or label_value_fault(new.name):
        faults.append(FieldError("metadata.name", fault))
    queues = await reader.queues()
    existing = queues.get(new.name)
    is_same = existing is not None and _is_same(existing, wanted)
    if existing is not None and not is_same:
        faults.append(FieldError(path, _EXISTS))
    if faults:
        raise ConfigError(faults)
    if new.parent:
        existing_queue(queues, new.parent)
    text = f"annotation {ACCESS} is {new.access}"
    write = QueueWrite(QUEUES, Key("", new.name), None if is_same else body, text)
    outcome = f"every namespace may use queue {new.name}"
    if (
        new.access is QueueAccessMode.CLOSED
    ):  # grants of an earlier queue with that name still count
        allow = grant_command(new.name, "NAMESPACE", user="USER")
        outcome = (
            f"queue {new.name} is closed. Grant it to the workloads of a namespace and to a user: "
            f"`{allow}` (or --group GROUP)"
        )
    notes = await _parent_notes(reader, queues, new.parent)
    return WritePlan((write,), (outcome,), notes)


def _is_same(existing: Queue, wanted: Queue) -> bool:
    """Say whether an existing queue equals the one to create."""
    access = existing.metadata.annotations.get(ACCESS), wanted.metadata.annotations.get(ACCESS)
    return existing.spec == wanted.spec and access[0] == access[1]


async def _parent_notes(
    reader: QueueReader, queues: Mapping[str, Queue], parent: str
) -> tuple[str, ...]:
    """Return a note that the parent takes no more pods, if this is its first child.

    Raise if the parent has PodGroups, because they would wait for ever.
    """
    if not parent or any(it.spec.parent_queue == parent for it in queues.values()):
        return ()
    podgroups = [
        it.metadata.key
        for it in await reader.list_all(ListTarget(PODGROUPS))
        if it.spec.queue == parent
    ]
    if podgroups:
        message = (
            f"has {len(podgroups)} PodGroups (such as {min(podgroups)}). They would wait for ever, "
            "because a queue with child queues takes no pods. Create the new queue below another "
            "parent, or wait until the PodGroups end"
        )
        raise ConfigError([FieldError(f"queue {parent}", message)])
    now = f"queue {parent} has no child queue yet"
    return (f"{now}; with one it takes no pods, and pods that name it wait",)
