"""`trainer-kai queue open`: let every namespace use a queue."""

from trainer_kai.cli.queue.carry import Reader
from trainer_kai.cli.queue.step import Plan, marked, stored
from trainer_kai.policy.access import Access

__all__ = ["plan_open"]


async def plan_open(reader: Reader, name: str) -> Plan:
    """Return what is written to open a queue; grants stay, for the day that it is closed again."""
    step = marked(stored(await reader.queues(), name), Access.OPEN)
    return Plan((step,), (f"every namespace may use queue {name}",))
