"""`trainer-kai queue open`: let every namespace use a queue."""

from trainer_kai.cli.queue.carry import QueueReader
from trainer_kai.cli.queue.step import WritePlan, access_write, existing_queue
from trainer_kai.policy.access import QueueAccessMode

__all__ = ["plan_open"]


async def plan_open(reader: QueueReader, name: str) -> WritePlan:
    """Return what is written to open a queue; grants stay, for the day that it is closed again."""
    step = access_write(existing_queue(await reader.queues(), name), QueueAccessMode.OPEN)
    return WritePlan((step,), (f"every namespace may use queue {name}",))
