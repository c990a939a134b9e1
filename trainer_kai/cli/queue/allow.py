"""`trainer-kai queue allow`: let a namespace use a queue, and users and groups submit to it."""

from collections.abc import Mapping

from trainer_kai.api.queue import Queue
from trainer_kai.cli.queue.carry import Reader
from trainer_kai.cli.queue.grants import Grant, granting
from trainer_kai.cli.queue.step import Plan, said_by, stored
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.access import Access, close_command

__all__ = ["plan_allow"]


async def plan_allow(reader: Reader, wish: Grant) -> Plan:
    """Return what is written for a grant, and whether it makes a difference."""
    if not wish.subjects:
        message = "there is nothing to allow: say -n NAMESPACE, --user USER or --group GROUP"
        raise ConfigError([FieldError(f"queue {wish.queue}", message)])
    queues = await reader.queues()
    stored(queues, wish.queue)
    note = _no_difference(queues, wish.queue)
    steps = granting(wish, await reader.held(wish))
    return Plan(steps, notes=(note,) if note else ())


def _no_difference(queues: Mapping[str, Queue], name: str) -> str:
    """Say why a grant changes nothing, or may not; "" where it does."""
    if any(it.spec.parent_queue == name for it in queues.values()):
        return f"queue {name} takes no pods: each queue below it needs a grant of its own"
    said, close = said_by(queues, name), close_command(name)
    if said.access is Access.OPEN:
        why = f"is open, for queue {said.by} says so: every namespace may use it"
        return f"queue {name} {why}; `{close}` closes it"
    if said.access is None:
        why = "is not annotated: where queue_access.unannotated is open every namespace may use it"
        return f"queue {name} {why}; `{close}` closes it"
    return ""
