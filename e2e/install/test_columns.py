"""What people see who ask kubectl for groups, queues and topologies."""

import re

from e2e.cluster.cluster import Cluster
from e2e.fixtures.install import PODGROUPS, QUEUES, TOPOLOGIES, kubectl
from e2e.install.schema_check import pod_group, queue, topology
from trainer_kai.api.names import TRAINER_KAI_PREFIX


async def test_a_group_shows_its_stage_and_why_it_waits(
    installed_cluster: Cluster, namespace: str
) -> None:
    """Of several words of the scheduler the last one is shown."""
    group = pod_group({"queue": "team-a"}, "job")
    group["metadata"]["namespace"] = namespace
    group["metadata"]["annotations"] = {
        f"{TRAINER_KAI_PREFIX}stage": "2/2 node after dataset-initializer Complete",
        f"{TRAINER_KAI_PREFIX}members": "3 node + 1 launcher later",
    }
    await installed_cluster.api.request("POST", PODGROUPS.path(namespace), group)
    reasons = ("ExceedsLimit", "NoCapacity")
    conditions = [
        {"type": "x", "reason": "Unschedulable", "reasons": [{"reason": "x"}, {"reason": reason}]}
        for reason in reasons
    ]
    status = {"status": {"schedulingConditions": conditions}}
    await installed_cluster.api.merge(PODGROUPS, namespace, "job", status, subresource="status")

    heading, row = await _table(installed_cluster, "podgroups.scheduling.run.ai", "-n", namespace)

    of_group = ["NAME", "WORKLOAD", "QUEUE", "STAGE", "MEMBERS"]
    assert heading == [*of_group, "STATE", "REASON", "SINCE", "AGE"]
    assert row[:7] == [
        "job",
        "",
        "team-a",
        "2/2 node after dataset-initializer Complete",
        "3 node + 1 launcher later",
        "Unschedulable",
        "NoCapacity",
    ]


async def test_the_short_name_of_a_group_is_that_of_kai(installed_cluster: Cluster) -> None:
    """`pg` means our PodGroups."""
    known = await kubectl(
        "--kubeconfig",
        str(installed_cluster.kubeconfig),
        "api-resources",
        "--api-group=scheduling.run.ai",
    )

    assert re.search(r"^podgroups +pg ", known, re.MULTILINE)


async def test_a_queue_shows_its_quota_and_its_allocation(installed_cluster: Cluster) -> None:
    """Quota and limit are read from the spec, what is allocated from the status."""
    shares = {"gpu": {"quota": 8, "limit": -1}}
    team = queue({"parentQueue": "research", "resources": shares, "priority": 7}, "shown")
    await installed_cluster.api.request("POST", QUEUES.path(), team)
    status = {"status": {"allocated": {"nvidia.com/gpu": "7500m"}, "childQueues": ["a"]}}
    await installed_cluster.api.merge(QUEUES, None, "shown", status, subresource="status")
    try:
        heading, row = await _table(installed_cluster, "queues.scheduling.run.ai", "shown")
        wide, _ = await _table(installed_cluster, "queues.scheduling.run.ai", "shown", "-o", "wide")
    finally:
        await installed_cluster.api.delete(QUEUES, None, "shown")

    assert heading == ["NAME", "PARENT", "GPU QUOTA", "GPU LIMIT", "GPU ALLOCATED", "AGE"]
    assert row[:-1] == ["shown", "research", "8", "-1", "7500m"]
    assert {"PRIORITY", "CHILDREN", "DISPLAYNAME"} <= set(wide)  # KAI's columns


async def test_a_topology_shows_its_levels(installed_cluster: Cluster) -> None:
    """The ends at once, all of them if asked."""
    labels = ["example.com/zone", "example.com/rack", "kubernetes.io/hostname"]
    await installed_cluster.api.request(
        "POST", TOPOLOGIES.path(), topology(*({"nodeLabel": x} for x in labels), name="shown")
    )
    try:
        heading, row = await _table(
            installed_cluster, "topologies.kai.scheduler", "shown", "-o", "wide"
        )
    finally:
        await installed_cluster.api.delete(TOPOLOGIES, None, "shown")

    assert heading == ["NAME", "COARSEST", "FINEST", "LEVELS", "AGE"]
    assert row[1:3] == [labels[0], labels[-1]]
    assert all(label in row[3] for label in labels)


async def _table(cluster: Cluster, *what: str) -> list[list[str]]:
    """Return the heading and the one row that kubectl prints, cell by cell."""
    lines = (await _printed(cluster, *what)).splitlines()
    assert len(lines) == 2
    starts = [found.start() for found in re.finditer(r"(?<!\S)\S+(?: \S+)*", lines[0])]
    ends = [*starts[1:], None]
    return [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in lines]


async def _printed(cluster: Cluster, *what: str) -> str:
    return await kubectl("--kubeconfig", str(cluster.kubeconfig), "get", *what)
