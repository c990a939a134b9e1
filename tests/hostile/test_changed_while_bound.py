"""H6: what a pod says when it was chosen counts, also if it says something else when it is bound.

A bind takes time. A tenant that relabels the pod meanwhile would have it on a node in a queue of
others, or in a PodGroup that may not start, which then counts as begun.
"""

from typing import Any, Final, TypeAlias

from tests.hostile.objects import TENANT, VICTIMS
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import FakeCluster
from tests.support.state.objects import JOBSET, group, node, pod, queue
from trainer_kai.api.names import ACCESS, QUEUE

Obj: TypeAlias = dict[str, Any]

_RED: Final = VICTIMS[0]
_BIND_S: Final = 0.3
_CLOSED: Final[Obj] = {"annotations": {ACCESS: "closed"}}
_OWNER_REFERENCE: Final[Obj] = {QUEUE: TENANT}
_JOB: Final = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "v"}
_JOB_LABELS: Final[Obj] = {"ownerReferences": [{**_JOB, "controller": True}]}


async def test_no_pod_is_bound_in_another_queue_than_it_was_chosen_in() -> None:
    """A closed one may not be used, and nothing is charged to it for a moment either."""
    scheduler = _scheduler_harness()
    scheduler.api.put(pod("p", labels=_OWNER_REFERENCE))
    async with scheduler.leading():
        assert "bind p to a" not in scheduler.api.written(), "it is under way"
        scheduler.api.put(pod("p", labels={QUEUE: _RED}))
        await scheduler.advance(_BIND_S + 0.1)
        used = scheduler.api.get("Queue", _RED).get("status", {}).get("allocated", {})
        await scheduler.advance(120)

        assert scheduler.api.node_of_pods() == {}
        assert used == {}


async def test_no_pod_begins_a_group_that_it_was_not_chosen_for() -> None:
    """A JobSet in a closed queue waits for its grant, whichever pods come to name its PodGroup."""
    scheduler = _scheduler_harness()
    scheduler.api.put(group("g", meta={"ownerReferences": [JOBSET]}, queue=_RED, minMember=3))
    scheduler.api.put(*(pod(f"g{i}", "g", meta=_JOB_LABELS) for i in range(3)))
    scheduler.api.put(pod("p", labels=_OWNER_REFERENCE, meta=_JOB_LABELS))
    async with scheduler.leading():
        scheduler.api.put(pod("p", "g", labels=_OWNER_REFERENCE, meta=_JOB_LABELS))
        await scheduler.advance(120)

        assert scheduler.api.node_of_pods() == {}
        (condition,) = scheduler.api.get("PodGroup", "g")["status"]["schedulingConditions"]
        assert condition["reasons"][-1]["reason"] == "ForbiddenQueue"


async def test_what_nothing_depends_on_may_change_meanwhile() -> None:
    """A pod that gets a condition from another process is bound all the same, and soon."""
    scheduler = _scheduler_harness()
    scheduler.api.put(pod("p", labels=_OWNER_REFERENCE))
    async with scheduler.leading():
        seen = {"conditions": [{"type": "Seen", "status": "True"}]}
        scheduler.api.put(pod("p", labels=_OWNER_REFERENCE, status=seen))
        await scheduler.advance(1)

        assert scheduler.api.node_of_pods() == {"p": "a"}


def _scheduler_harness() -> SchedulerHarness:
    """Return a scheduler with slow binds, and queues of which the tenant may use one."""
    api = FakeCluster()
    api.may_use[TENANT] = True
    api.put(node("a"), queue(TENANT, meta=_CLOSED), queue(_RED, meta=_CLOSED))
    api.delay_s = lambda what: _BIND_S if what.startswith("bind") else 0.0
    return SchedulerHarness(api, "open")
