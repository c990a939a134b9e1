"""`trainer-kai queue allow`: let a namespace use a queue, and users and groups submit to it."""

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
    if any(it.spec.parent_queue == wish.queue for it in queues.values()):
        note = f"queue {wish.queue} takes no pods: each queue below it needs a grant of its own"
    elif said_by(queues, wish.queue).access is not Access.CLOSED:
        close = close_command(wish.queue)
        note = f"queue {wish.queue} does not say that it is closed: `{close}` closes it"
    else:
        note = ""
    steps = granting(wish, await reader.held(wish))
    return Plan(steps, notes=(note,) if note else ())
