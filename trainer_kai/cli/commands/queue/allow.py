"""`trainer-kai queue allow`: let a namespace use a queue, and users and groups submit to it."""

from collections.abc import Mapping

from trainer_kai.api.queue import Queue
from trainer_kai.cli.commands.queue.execute import QueueReader, read_all
from trainer_kai.cli.commands.queue.grants import QueueGrant, grant_writes
from trainer_kai.cli.commands.queue.write_plan import WritePlan, effective_access, existing_queue
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.queueing.queue_access import QueueAccessMode, close_command


async def plan_allow(reader: QueueReader, grant: QueueGrant) -> WritePlan:
    """Return the writes of a grant, and a note if it has no effect."""
    if not grant.subjects:
        message = "nothing to allow: set -n NAMESPACE, --user USER or --group GROUP"
        raise ConfigError([FieldError(f"queue {grant.queue}", message)])
    queues, existing = await read_all(reader.queues(), reader.existing_grant(grant))
    existing_queue(queues, grant.queue)
    note = _no_effect_note(queues, grant.queue)
    writes = grant_writes(grant, existing)
    return WritePlan(writes, notes=(note,) if note else ())


def _no_effect_note(queues: Mapping[str, Queue], name: str) -> str:
    """Return why a grant has no effect, or may have none; "" where it has one."""
    if any(it.spec.parent_queue == name for it in queues.values()):
        return (
            f"queue {name} takes no pods, because it has child queues: grant a child queue instead"
        )
    access, close = effective_access(queues, name), close_command(name)
    if access.mode is QueueAccessMode.OPEN:
        why = f"is open (annotation of queue {access.decided_by}), so every namespace may use it"
        return f"queue {name} {why}; `{close}` closes it"
    if access.mode is None:
        why = "has no access annotation: every namespace may use it, unless"
        why += " queue_access.unannotated is closed"
        return f"queue {name} {why}; `{close}` closes it"
    return ""
