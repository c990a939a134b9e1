"""What a Queue may say: what KAI admits, but for a parent that no queue can be."""

from typing import Any, Final

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import Obj
from e2e.fixtures.install import QUEUES
from e2e.install.schema_check import SCHEMA, RuleCase, check_case, queue, row_id

UNBOUND: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def shares(**resources: Any) -> Obj:
    """Return a Queue of some shares."""
    return queue({"resources": resources})


def owing(**fields: Any) -> Obj:
    """Return a Queue without bounds that says something else besides."""
    return queue({"resources": {"gpu": UNBOUND}, **fields})


ROWS: Final = [
    RuleCase("-1 is no bound", shares(gpu=UNBOUND, cpu=UNBOUND, memory=UNBOUND)),
    RuleCase("half a GPU may be owed", shares(gpu={"quota": 0.5, "limit": 1e3})),
    RuleCase("a queue may be owed nothing", shares(gpu={})),
    RuleCase("a queue may mention no resource", shares()),
    RuleCase("KAI's fields are known", owing(
        displayName="Team A", parentQueue="research", priority=200, preemptMinRuntime="10m",
        reclaimMinRuntime="1h30m",
    )),
    RuleCase("null is no priority", owing(priority=None)),
    RuleCase("the top may be spelled out", owing(parentQueue="")),
    RuleCase("no spec", queue(), "spec.resources: Required value: set quota, overQuotaWeight"),
    RuleCase("no resources", queue({"parentQueue": "research"}),
        "the queue may use nothing of a resource that is left out"),
    RuleCase("less than no bound, which KAI admits", shares(gpu={"quota": -2})),
    RuleCase("a part of a bound", shares(cpu={"limit": -0.5})),
    RuleCase("a negative weight", shares(memory={"overQuotaWeight": -1})),
    RuleCase("a number in quotes", shares(gpu={"quota": "8"}), "must be of type number", SCHEMA),
    RuleCase("its own parent", owing(parentQueue="queue"), "a queue cannot be "
"its own parent"),
    RuleCase("a parent that no queue can be", owing(parentQueue="Team A"),
        'spec.parentQueue: Invalid value: "Team A": must be a valid name of a queue'),
    RuleCase("a runtime in words", owing(preemptMinRuntime="ten minutes")),
    RuleCase("a runtime below zero", owing(reclaimMinRuntime="-10m")),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=row_id)
async def test_the_rules_of_a_queue(row: RuleCase, installed_cluster: Cluster) -> None:
    """The API server says what is wrong and what would be right; the product agrees."""
    await check_case(installed_cluster, row)


async def test_the_usage_of_a_queue_is_stored(installed_cluster: Cluster) -> None:
    """The whole status of KAI is known, and a queue in use can be written without a word of it."""
    obj = queue({"resources": {"gpu": UNBOUND}}, name="usage")
    await installed_cluster.api.request("POST", QUEUES.path(), obj)
    amounts = {"nvidia.com/gpu": "7500m", "cpu": "3", "memory": 1024}
    status = {
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ok", "message": "",
            "lastProbeTime": "2026-11-21T10:00:00Z", "lastTransitionTime": "2026-11-21T10:00:00Z",
        }],
        "childQueues": ["team-a"],
        "allocated": amounts, "allocatedNonPreemptible": amounts, "requested": amounts,
    }  # fmt: skip

    stored = await installed_cluster.api.merge(
        QUEUES, None, "usage", {"status": status}, subresource="status"
    )

    assert stored["status"] == status
    await installed_cluster.api.delete(QUEUES, None, "usage")
