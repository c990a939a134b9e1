"""`trainer-kai queue open` and `close`: let all namespaces, or only granted ones, use a queue."""

from itertools import chain
from typing import Final

from trainer_kai.api.meta import PartialObject
from trainer_kai.api.names import ACCESS
from trainer_kai.api.resource import Resource
from trainer_kai.cli.commands.queue.execute import QueueReader, read_all
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
    WritePlan,
    access_write,
    existing_queue,
    inheriting_queues,
)
from trainer_kai.kube.rest.request import ALL, ListTarget, Selection
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, close_command, grant_command

_MANIFEST_NOTE: Final = (
    "if a manifest of queue {} sets the annotation, set it to closed there as well: otherwise the "
    "next apply conflicts with this change, and with --force-conflicts opens the queue again"
)
_SCHEDULER: Final = "schedulerName"  # of pods; the API server supports it as a field selector


async def plan_close(reader: QueueReader, name: str, settings: SiteSettings | None) -> WritePlan:
    """Return the writes that close a queue; with *settings* also grants for its namespaces."""
    usage = [_current_uses(reader, settings)] if settings else []
    queues, *uses = await read_all(reader.queues(), *usage)
    queue, inheriting = existing_queue(queues, name), inheriting_queues(queues, name)
    used = (use for use in chain(*uses) if use.queue in inheriting)
    grants = [make_grant(use.queue, use.namespace) for use in used]
    existing = await read_all(*map(reader.existing_grant, grants))
    pairs = zip(grants, existing, strict=True)
    writes = [*chain.from_iterable(grant_writes(grant, it) for grant, it in pairs)]
    writes.append(access_write(queue, QueueAccessMode.CLOSED))
    notes = (
        [_MANIFEST_NOTE.format(name)]
        if queue.metadata.annotations.get(ACCESS) == QueueAccessMode.OPEN
        else []
    )
    note = (
        f"namespaces that use queue {name} now without a grant can start nothing more in it; "
        f"`{close_command(name)}` grants them"
    )
    allow = grant_command(name, "NAMESPACE", user="USER")
    outcome = (
        f"queue {name} is closed. Users that name it in a TrainJob, and other namespaces, need "
        f"a grant: `{allow}`"
    )
    return WritePlan(tuple(writes), (outcome,), tuple(notes if settings else [note, *notes]))


async def _current_uses(reader: QueueReader, settings: SiteSettings) -> list[NamespaceQueue]:
    """Return which namespaces use which queues."""

    async def metadata(
        resource: Resource[PartialObject], selection: Selection = ALL
    ) -> list[PartialObject]:
        return await reader.list_all(ListTarget(resource, "", selection, only_metadata=True))

    our_pods = Selection(fields=f"spec.{_SCHEDULER}={settings.scheduler_name}")
    workloads = await read_all(
        *map(metadata, (NAMESPACES, TRAINJOBS, JOBSETS)),
        metadata(PODS, our_pods),
        reader.list_all(ListTarget(PODGROUPS)),
    )
    return namespace_queues(QueueWorkloads(*workloads), settings.default_queue)


async def plan_open(reader: QueueReader, name: str) -> WritePlan:
    """Return the write that opens a queue; grants are kept, and count when it is closed again."""
    write = access_write(existing_queue(await reader.queues(), name), QueueAccessMode.OPEN)
    return WritePlan((write,), (f"every namespace may use queue {name}",))
