"""`trainer-kai queue allow`, `open` and `close`: which namespaces and users may use a queue."""

from collections.abc import Mapping
from itertools import chain
from typing import Final

from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import PartialObject
from trainer_kai.api.names import ACCESS
from trainer_kai.api.resources import QUEUES, Resource
from trainer_kai.cli.commands.queue.namespace_queues import (
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
    QueueGrant,
    QueueReader,
    QueueWrite,
    WritePlan,
    access_write,
    effective_access,
    existing_queue,
    grant_writes,
    inheriting_queues,
    make_grant,
    read_all,
    user_role_write,
)
from trainer_kai.cli.output.missing_rights import grant_hint
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.request import ALL, ListTarget, Selection
from trainer_kai.policy.queueing.queue_access import (
    QueueAccessMode,
    close_command,
    grant_command,
    service_accounts_group,
)

_MANIFEST_NOTE: Final = (
    "if a manifest of queue {} sets the annotation, set it to closed there as well: otherwise the "
    "next apply conflicts with this change, and with --force-conflicts opens the queue again"
)


async def plan_allow(reader: QueueReader, grant: QueueGrant) -> WritePlan:
    if not grant.subjects:
        message = "nothing to allow: set -n NAMESPACE, --user USER or --group GROUP"
        raise ConfigError([FieldError(f"queue {grant.queue}", message)])
    queues, existing = await read_all(reader.queues(), reader.existing_grant(grant))
    existing_queue(queues, grant.queue)
    note = _no_effect_note(queues, grant.queue)
    notes = [note] if note else []
    writes: list[QueueWrite] = [*grant_writes(grant, existing)]
    own_group = service_accounts_group(grant.namespace)
    people = [it for it in grant.subjects if it.name != own_group]
    if people:
        try:
            writes.append(user_role_write(people, await reader.user_role_binding()))
        except ConfigError:
            notes.append(f"queue list and positions: {grant_hint(QUEUES, '')}")
    return WritePlan(tuple(writes), notes=tuple(notes))


def _no_effect_note(queues: Mapping[str, Queue], name: str) -> str:
    """Return why a grant has no effect, or may have none; "" where it has one."""
    if any(it.spec.parent_queue == name for it in queues.values()):
        why = "takes no pods, because it has child queues"
        return f"queue {name} {why}: grant a child queue instead"
    access, close = effective_access(queues, name), close_command(name)
    if access.mode is QueueAccessMode.OPEN:
        why = f"is open (annotation of queue {access.decided_by}), so every namespace may use it"
        return f"queue {name} {why}; `{close}` closes it"
    if access.mode is None:
        why = "every namespace may use it, unless queue_access.unannotated is closed"
        return f"queue {name} has no access annotation: {why}; `{close}` closes it"
    return ""


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
    notes = []
    if settings is None:
        cut_off = f"namespaces that use queue {name} now without a grant can start nothing more"
        notes.append(f"{cut_off} in it; `{close_command(name)}` grants them")
    if queue.metadata.annotations.get(ACCESS) == QueueAccessMode.OPEN:
        notes.append(_MANIFEST_NOTE.format(name))
    allow = grant_command(name, "NAMESPACE", user="USER")
    outcome = (
        f"queue {name} is closed. Users that name it in a TrainJob, and other namespaces, need "
        f"a grant: `{allow}`"
    )
    return WritePlan(tuple(writes), (outcome,), tuple(notes))


async def _current_uses(reader: QueueReader, settings: SiteSettings) -> list[NamespaceQueue]:
    async def metadata(
        resource: Resource[PartialObject], selection: Selection = ALL
    ) -> list[PartialObject]:
        return await reader.list_all(ListTarget(resource, "", selection, only_metadata=True))

    our_pods = Selection(fields=f"spec.schedulerName={settings.scheduler_name}")
    workloads = await read_all(
        *map(metadata, (NAMESPACES, TRAINJOBS, JOBSETS)),
        metadata(PODS, our_pods),
        reader.list_all(ListTarget(PODGROUPS)),
    )
    return namespace_queues(QueueWorkloads(*workloads), settings.default_queue)


async def plan_open(reader: QueueReader, name: str) -> WritePlan:
    """Return the write that opens a queue; grants are kept, and count when it is closed again."""
    queue = existing_queue(await reader.queues(), name)
    writes = (access_write(queue, QueueAccessMode.OPEN),)
    return WritePlan(writes, (f"every namespace may use queue {name}",))
