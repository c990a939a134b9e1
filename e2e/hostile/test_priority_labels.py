"""A label that asks for the priority of the system."""

from collections.abc import Callable
from typing import Final

from e2e.cluster.timeline import State
from e2e.front.install import PODGROUPS
from e2e.front.queues import let_use
from e2e.hostile.conftest import TENANT, Arena
from e2e.scheduler.teams import Job, on_nodes, submit

_SYSTEM: Final = "system-node-critical"


async def test_a_label_takes_no_gpu_from_a_shared_queue(arena: Arena) -> None:
    """In a shared queue it evicts no TrainJob, and a condition of its PodGroup says why."""
    cluster = arena.house.cluster
    await arena.claim("red", "blue")
    await let_use(cluster, "blue", TENANT)
    await submit(cluster, TENANT, Job("urgent", "blue", 8, priority=_SYSTEM))
    await arena.seen.until(_told(_SYSTEM), "the condition names the classes that are right")
    await arena.unharmed("red", "blue")
    assert on_nodes("urgent", 0)(arena.seen.state)


def _told(words: str) -> Callable[[State], bool]:
    """Return a test whether a condition of the tenant's PodGroup says so."""
    return lambda state: any(
        words in condition["message"]
        for key, group in state.items()
        if key.resource == PODGROUPS and key.namespace == TENANT
        for condition in group.get("status", {}).get("schedulingConditions") or ()
    )
