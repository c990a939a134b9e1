"""`trainer-kai queue close`: let only those use a queue that are allowed to."""

from typing import Final

from trainer_kai.api.meta import PartialObject
from trainer_kai.api.names import ACCESS
from trainer_kai.api.resource import Resource
from trainer_kai.cli.queue.carry import Reader
from trainer_kai.cli.queue.grants import grant, granting
from trainer_kai.cli.queue.step import Plan, Step, governed, marked, stored
from trainer_kai.cli.queue.usage import (
    GROUPS,
    JOBSETS,
    NAMESPACES,
    PODS,
    TRAINJOBS,
    Site,
    Use,
    Work,
    uses,
)
from trainer_kai.kube.request import ALL, Selection, Target
from trainer_kai.policy.access import Access, close_command, grant_command

__all__ = ["plan_close"]

_SAYS_OPEN: Final = (
    "a manifest of queue {} may have the annotation too: write closed there as well, for else the "
    "next apply is in conflict with this, and with --force-conflicts opens it again"
)
_SCHEDULER: Final = "schedulerName"  # of pods: the API server selects by it


async def plan_close(reader: Reader, name: str, site: Site | None) -> Plan:
    """Return what is written to close a queue; with a site its users are granted it before."""
    queues = await reader.queues()
    queue, below = stored(queues, name), governed(queues, name)
    steps: list[Step] = []
    for use in await _used(reader, site) if site else ():
        if use.queue in below:
            given = grant(use.queue, use.namespace)
            steps += granting(given, await reader.held(given))
    steps.append(marked(queue, Access.CLOSED))
    notes = (
        [_SAYS_OPEN.format(name)] if queue.metadata.annotations.get(ACCESS) == Access.OPEN else []
    )
    note = (
        f"namespaces that use queue {name} now and have no grant start nothing more in it; "
        f"`{close_command(name)}` grants them"
    )
    allow = grant_command(name, "NAMESPACE", user="USER")
    ending = (
        f"queue {name} is closed; users that name it in a TrainJob, and other namespaces, need "
        f"`{allow}`"
    )
    return Plan(tuple(steps), (ending,), tuple(notes if site else [note, *notes]))


async def _used(reader: Reader, site: Site) -> list[Use]:
    """Return the uses of all queues."""

    async def metadata(
        resource: Resource[PartialObject], selection: Selection = ALL
    ) -> list[PartialObject]:
        return await reader.all(Target(resource, "", selection, only_metadata=True))

    ours = Selection(fields=f"spec.{_SCHEDULER}={site.scheduler_name}")
    work = Work(
        namespaces=await metadata(NAMESPACES),
        trainjobs=await metadata(TRAINJOBS),
        jobsets=await metadata(JOBSETS),
        pods=await metadata(PODS, ours),
        groups=await reader.all(Target(GROUPS)),
    )
    return uses(work, site.default_queue)
