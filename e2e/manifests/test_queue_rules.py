"""What a Queue may say: what KAI admits, but for a parent that no queue can be."""

from typing import Any, Final

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import Obj
from e2e.front.install import QUEUES
from e2e.manifests.verdict import SCHEMA, ValidationCase, check_case, queue, row_id

UNBOUND: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def shares(**resources: Any) -> Obj:
    """Return a Queue of some shares."""
    return queue({"resources": resources})


def owing(**fields: Any) -> Obj:
    """Return a Queue without bounds that says something else besides."""
    return queue({"resources": {"gpu": UNBOUND}, **fields})


ROWS: Final = [
    ValidationCase("-1 is no bound", shares(gpu=UNBOUND, cpu=UNBOUND, memory=UNBOUND)),
    ValidationCase("half a GPU may be owed", shares(gpu={"quota": 0.5, "limit": 1e3})),
    ValidationCase("a queue may be owed nothing", shares(gpu={})),
    ValidationCase("a queue may mention no resource", shares()),
    ValidationCase("KAI's fields are known", owing(
        displayName="Team A", parentQueue="research", priority=200, preemptMinRuntime="10m",
        reclaimMinRuntime="1h30m",
    )),
    ValidationCase("null is no priority", owing(priority=None)),
    ValidationCase("the top may be spelled out", owing(parentQueue="")),
    ValidationCase("no spec", queue(), "spec.resources: Required value: must be there: quota"),
    ValidationCase("no resources", queue({"parentQueue": "research"}),
        "-1 for quota and limit means no bound, and of what is left out a queue may use nothing"),
    ValidationCase("less than no bound, which KAI admits", shares(gpu={"quota": -2})),
    ValidationCase("a part of a bound", shares(cpu={"limit": -0.5})),
    ValidationCase("a negative weight", shares(memory={"overQuotaWeight": -1})),
    ValidationCase("a number in quotes", shares(gpu={"quota": "8"}), "must be of type number", SCHEMA),
    ValidationCase("its own parent", owing(parentQueue="queue"), "a queue cannot be its own parent"),
    ValidationCase("a parent that no queue can be", owing(parentQueue="Team A"),
        'spec.parentQueue: Invalid value: "Team A": must be the name of a queue'),
    ValidationCase("a runtime in words", owing(preemptMinRuntime="ten minutes")),
    ValidationCase("a runtime below zero", owing(reclaimMinRuntime="-10m")),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=row_id)
async def test_the_rules_of_a_queue(row: ValidationCase, installed: Cluster) -> None:
    """The API server says what is wrong and what would be right; the product agrees."""
    await check_case(installed, row)


async def test_the_usage_of_a_queue_is_stored(installed: Cluster) -> None:
    """The whole status of KAI is known, and a queue in use can be written without a word of it."""
    obj = queue({"resources": {"gpu": UNBOUND}}, name="usage")
    await installed.api.request("POST", QUEUES.path(), obj)
    amounts = {"nvidia.com/gpu": "7500m", "cpu": "3", "memory": 1024}
    status = {
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ok", "message": "",
            "lastProbeTime": "2026-11-21T10:00:00Z", "lastTransitionTime": "2026-11-21T10:00:00Z",
        }],
        "childQueues": ["team-a"],
        "allocated": amounts, "allocatedNonPreemptible": amounts, "requested": amounts,
    }  # fmt: skip

    stored = await installed.api.merge(
        QUEUES, None, "usage", {"status": status}, subresource="status"
    )

    assert stored["status"] == status
    await installed.api.delete(QUEUES, None, "usage")
