"""Two replicas of the webhook behind one address, and one of them dies under load."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from e2e.admission_grouping.balancer import Balancer
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import JOBSETS, PODS, TRAINJOBS
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission, condition
from e2e.fixtures.install import PODGROUPS, install
from e2e.fixtures.podgroups import PODGROUP, QUEUE, pods_in
from e2e.fixtures.processes import PODGROUPER, SCHEDULER, WEBHOOK, running, webhook_port
from e2e.size import size

_JOBS: Final = size(24, 200)
_OTHER: Final = WEBHOOK._replace(name="webhook-2")


@pytest.mark.sized
async def test_a_replica_that_dies_costs_nothing(tmp_path: Path) -> None:
    """None of the TrainJobs fails; each has its one group, and is started."""
    async with running_cluster(Options(name="test-replicas")) as cluster:
        address, port = cluster.free_port(), cluster.free_port()
        await cluster.add_nodes(8, NodeShape(gpus=32))
        await install(cluster, port=address)
        jobs = [_submission(i).trainjob() for i in range(_JOBS)]
        settings = {"TRAINER_KAI_SERVER_PORT": str(port)}
        async with (
            running(cluster, WEBHOOK, tmp_path) as first,
            running(cluster, _OTHER, tmp_path, settings),
            running(cluster, PODGROUPER, tmp_path),
            running(cluster, SCHEDULER, tmp_path),
            Balancer(address, webhook_port(cluster), port) as balancer,
            cluster.timeline(TRAINJOBS, JOBSETS, PODGROUPS, PODS, namespace="default") as seen,
        ):
            coming = asyncio.create_task(cluster.api.create_all(jobs, in_flight=8))
            await seen.until(lambda state: _count(state) > _JOBS // 4, "some JobSets exist", 60)
            assert _count(seen.state) < _JOBS, "it is too late to kill anybody"
            before = dict(balancer.passed)
            await first.kill()
            try:
                await coming
                await seen.until(lambda state: _running(state) == _JOBS, "all pods run", 120)
            finally:
                await first.start()
            history = seen.history()

    assert min(before.values()) > 0
    assert len(before) == 2
    assert len(seen.objects(TRAINJOBS)) == _JOBS
    assert not any(condition(job, "Failed") for job in seen.objects(TRAINJOBS))
    groups = Counter(
        it.obj["metadata"]["ownerReferences"][0]["name"]
        for it in history
        if it.key.resource == PODGROUPS and it.type == "ADDED"
    )
    assert groups == Counter(job["metadata"]["name"] for job in jobs)
    last = {it.key: it.obj for it in history if it.key.resource == PODS}
    assert len(last) == _JOBS
    assert all(PODGROUP in pod["metadata"]["annotations"] for pod in last.values())


def _submission(number: int) -> Submission:
    labels = {QUEUE: "default-queue"}
    return Submission(f"job-{number:03}", "torch-distributed", "default", 1, 1, labels=labels)


def _running(state: State) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in pods_in(state))


def _count(state: State) -> int:
    return sum(key.resource == JOBSETS for key in state)
