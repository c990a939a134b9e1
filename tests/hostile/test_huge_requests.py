"""What a tenant asks for is a number, however large: the others keep their share."""

import json
from typing import Any, Final

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import GPU, TENANT, cluster, node, pod, pod_group, queue

_HUGE: Final = str(2**60)
_EXPECTED: Final = 100_000  # pods of one PodGroup that come later, which is as many as may


def _gang(namespace: str, members: int) -> list[dict[str, Any]]:
    pods = (pod(namespace, f"p{n}", 1, "job") for n in range(members))
    return [pod_group(namespace, "job", members), *pods]


def _huge(name: str, resource: str) -> list[dict[str, Any]]:
    """Return a PodGroup of the tenant with one pod, and 100,000 of the largest that come later."""
    amounts = {resource: _HUGE}
    one = pod(TENANT, name, 1, name)
    one["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    one["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "first"
    later = {"subGroupPrefix": "later-", "replicas": 1, "count": _EXPECTED, "requests": amounts}
    group = pod_group(TENANT, name)
    podsets = [{"name": "first", "minMember": 1}, {"name": "later-0", "minMember": _EXPECTED}]
    group["spec"] = {"queue": TENANT, "minMember": 2, "subGroups": podsets}
    note = json.dumps({"later": [later]})
    group["metadata"]["annotations"] = {"trainer-kai.dev/anticipated": note}
    return [group, one]


@pytest.mark.parametrize("resource", ["cpu", "memory", GPU])
def test_a_sister_gets_its_share_beside_huge_sums(simulate: SimulateFixture, resource: str) -> None:
    """300,000 of the largest pods are expected: red, below the same queue, takes back its part.

    Of the 8 GPUs that the two are due the tenant may want as many as it likes: red's are 4.
    """
    queues = [queue("blue", 8), queue("both", 8)]
    queues += [queue(name, 0, parent="both") for name in ("red", TENANT)]
    runs = [pod("blue", f"p{n}", 1, node=f"n{n // 8}") for n in range(16)]
    tenants = [it for n in range(3) for it in _huge(f"huge{n}", resource)]
    objects = [*map(node, ("n0", "n1")), *queues, *runs, *tenants, *_gang("red", 4)]
    found = simulate(objects)
    assert sorted(found.evictions.values()) == ["reclaim"] * 4
    assert "than any node can have" in found.waiting[f"{TENANT}/huge0"]["message"]
    for it in found.document["queues"]:
        assert min(it["requested"].values()) >= 0, it["name"]


@pytest.mark.parametrize("resource", ["cpu", "memory", GPU])
def test_the_victims_start_beside_huge_sums(simulate: SimulateFixture, resource: str) -> None:
    """300,000 of the largest pods are expected: red and blue have what they are owed."""
    tenants = [it for n in range(3) for it in _huge(f"huge{n}", resource)]
    found = simulate([*cluster(), *tenants, *_gang("red", 8), *_gang("blue", 8)])
    assert len(found.binds) == 16
    for it in found.document["queues"]:
        assert min(it["requested"].values()) >= 0, it["name"]


def test_what_partitions_of_gpus_come_to_is_bounded(simulate: SimulateFixture) -> None:
    """Profiles count several times for a queue: sums over many of them do not wrap either."""
    one = pod(TENANT, "mig", 1)
    profiles = {f"nvidia.com/mig-{n}g.{n}gb": _HUGE for n in range(90, 100)}
    one["spec"]["containers"][0]["resources"] = {"limits": profiles}
    found = simulate([*cluster(), one, *_gang("red", 8), *_gang("blue", 8)])
    assert len(found.binds) == 16
    requested = {it["name"]: it["requested"]["gpu"] for it in found.document["queues"]}
    assert requested[TENANT] > 10**9
