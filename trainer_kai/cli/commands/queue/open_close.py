"""`trainer-kai queue open` and `close`: let every namespace, or only granted ones, use a queue."""

from typing import Final

from trainer_kai.api.meta import PartialObject
from trainer_kai.api.names import ACCESS
from trainer_kai.api.resource import Resource
from trainer_kai.cli.commands.queue.execute import QueueReader
from trainer_kai.cli.commands.queue.grants import grant_writes, make_grant
from trainer_kai.cli.commands.queue.usage import (
    JOBSETS,
    NAMESPACES,
    PODGROUPS,
    PODS,
    TRAINJOBS,
    NamespaceQueue,
    QueueWorkloads,
    SiteSettings,
    namespace_queues,
)
from trainer_kai.cli.commands.queue.write_plan import (
    QueueWrite,
    WritePlan,
    access_write,
    existing_queue,
    inheriting_queues,
)
from trainer_kai.kube.rest.request import ALL, ListTarget, Selection
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, close_command, grant_command

__all__ = ["plan_close", "plan_open"]

_MANIFEST_NOTE: Final = (
    "a manifest of queue {} may have the annotation too: write closed there as well, for else the "
    "next apply is in conflict with this, and with --force-conflicts opens it again"
)
_SCHEDULER: Final = "schedulerName"  # of pods: the API server selects by it


async def plan_close(reader: QueueReader, name: str, settings: SiteSettings | None) -> WritePlan:
    """Return the writes that close a queue; with *settings* grants for its namespaces as well."""
    queues = await reader.queues()
    queue, inheriting = existing_queue(queues, name), inheriting_queues(queues, name)
    writes: list[QueueWrite] = []
    for use in await _current_uses(reader, settings) if settings else ():
        if use.queue in inheriting:
            new_grant = make_grant(use.queue, use.namespace)
            writes += grant_writes(new_grant, await reader.existing_grant(new_grant))
    writes.append(access_write(queue, QueueAccessMode.CLOSED))
    notes = (
        [_MANIFEST_NOTE.format(name)]
        if queue.metadata.annotations.get(ACCESS) == QueueAccessMode.OPEN
        else []
    )
    note = (
        f"namespaces that use queue {name} now and have no grant start nothing more in it; "
        f"`{close_command(name)}` grants them"
    )
    allow = grant_command(name, "NAMESPACE", user="USER")
    outcome = (
        f"queue {name} is closed; users that name it in a TrainJob, and other namespaces, need "
        f"`{allow}`"
    )
    return WritePlan(tuple(writes), (outcome,), tuple(notes if settings else [note, *notes]))


async def _current_uses(reader: QueueReader, settings: SiteSettings) -> list[NamespaceQueue]:
    """Return which namespaces use which queues."""

    async def metadata(
        resource: Resource[PartialObject], selection: Selection = ALL
    ) -> list[PartialObject]:
        return await reader.list_all(ListTarget(resource, "", selection, only_metadata=True))

    our_pods = Selection(fields=f"spec.{_SCHEDULER}={settings.scheduler_name}")
    workloads = QueueWorkloads(
        namespaces=await metadata(NAMESPACES),
        trainjobs=await metadata(TRAINJOBS),
        jobsets=await metadata(JOBSETS),
        pods=await metadata(PODS, our_pods),
        podgroups=await reader.list_all(ListTarget(PODGROUPS)),
    )
    return namespace_queues(workloads, settings.default_queue)


async def plan_open(reader: QueueReader, name: str) -> WritePlan:
    """Return the write that opens a queue; grants stay, and count when it is closed again."""
    write = access_write(existing_queue(await reader.queues(), name), QueueAccessMode.OPEN)
    return WritePlan((write,), (f"every namespace may use queue {name}",))
