"""A tenant resizes a pod in place, which asks no queue and no scheduler.

A pod that shrinks gives its node back what the kubelet has taken away, and no sooner; one that
grows beyond the quota of its queue cannot keep that from the others by being non-preemptible.
"""

from typing import Any, Final

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import TENANT, cluster, node, pod, queue
from tests.support.case import Case, ids

Obj = dict[str, Any]

_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"


def cpu_queue(name: str, cores: int) -> Obj:
    """Return a queue with a quota of CPU, too."""
    made = queue(name, 0)
    cpu = {"quota": cores * 1000, "limit": -1, "overQuotaWeight": 1}
    resources = {**made["spec"]["resources"], "cpu": cpu}
    return {**made, "spec": {"resources": resources}}


def sized(namespace: str, name: str, cpu: int, node_name: str = "", generation: int = 1) -> Obj:
    """Return a pod that requests CPU; *generation* 2 is after a resize."""
    made = pod(namespace, name, 0, node=node_name)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cpu)}}
    made["metadata"]["generation"] = generation
    return made


def fixed(made: Obj) -> Obj:
    """Make a pod non-preemptible."""
    made["metadata"]["labels"][_PREEMPTIBILITY] = "non-preemptible"
    return made


def test_what_the_kubelet_has_not_taken_away_is_not_given_to_another(
    simulate: SimulateFixture,
) -> None:
    """The spec has 1 CPU, the container still has 100."""
    shrunk = sized(TENANT, "shrunk", 1, "n0", generation=2)
    has = {"name": "c", "resources": {"requests": {"cpu": "100"}}}
    shrunk["status"]["containerStatuses"] = [{**has, "allocatedResources": {"cpu": "1"}}]
    waits, fits = sized("red", "waits", 100), sized("red", "fits", 20)

    measured = simulate([*cluster(1), shrunk, waits, fits], cycles=1)

    assert measured.binds == {"red/fits": "n0"}


# the generation of the tenant's pod -> whether red gets what is its own
GROWN: list[Case[int, bool]] = [
    Case("since it was created", 2, True),
    Case("of that size since it was created", 1, False),
]


@pytest.mark.parametrize("case", GROWN, ids=ids)
def test_a_non_preemptible_pod_that_grew(case: Case[int, bool], simulate: SimulateFixture) -> None:
    """What it has beyond the quota of its queue can be reclaimed, as if it were preemptible."""
    grown = fixed(sized(TENANT, "grown", 100, "n0", case.given))
    beside = fixed(sized(TENANT, "beside", 4, "n0"))
    waits = sized("red", "waits", 100)
    queues = [cpu_queue("red", 124), cpu_queue(TENANT, 4)]

    measured = simulate([node("n0"), *queues, beside, grown, waits], cycles=1)

    evicted = {"tenant/grown": "reclaim"} if case.want else {}
    assert measured.evictions == evicted


def test_a_sibling_does_not_pay_for_what_grew(simulate: SimulateFixture) -> None:
    """Their parent has more than its quota, and one of them more than its own.

    What is within its own quota stays non-preemptible, also for PodGroups of higher priority.
    """
    grown = fixed(sized(TENANT, "grown", 60, "n0", 2))
    within = fixed(sized("blue", "within", 20, "n0", 2))  # the newest: it would pay first
    grown["metadata"]["creationTimestamp"] = "2026-01-05T08:00:00Z"
    within["metadata"]["creationTimestamp"] = "2026-01-05T09:00:00Z"
    urgent = sized("blue", "urgent", 60)
    urgent["metadata"]["labels"]["priorityClassName"] = "urgent"
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 75}
    priority["metadata"] = {"name": "urgent"}
    queues = [cpu_queue("parent", 24), cpu_queue(TENANT, 4), cpu_queue("blue", 20)]
    for below in queues[1:]:
        below["spec"]["parentQueue"] = "parent"

    measured = simulate([node("n0"), *queues, priority, grown, within, urgent], cycles=1)

    assert "blue/within" not in measured.evictions
