"""TrainJobs drawn by lot, and what their users do to them meanwhile."""

import asyncio
import json
import random
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pytest

from e2e.cluster.kwok_stages import READY_SECONDS, RUN_SECONDS
from e2e.cluster.patience import patience
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Key, Timeline
from e2e.cluster.trainjobs import Submission, condition, pod_annotations
from e2e.fixtures.install import PODGROUPS, QUEUES
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, finishing_pods
from e2e.scheduling.gang_check import check_gangs
from e2e.scheduling.test_gangs import make_queue, until_unused
from e2e.size import SEED, size

_JOBS: Final = size(20, 300)
_PASSED: Final = 60  # binds of others that may come between the first and the last of a gang
_IN_FLIGHT: Final = 24  # that are not over: they ask for more than there is
_SHARE: Final = 0.15  # of them are suspended for a while, and as many are deleted
_WATCHED: Final = (TRAINJOBS, JOBSETS, PODGROUPS, PODS, NODES)
_ALL_S: Final = 300.0
_RUNTIMES: Final = (
    "torch-distributed",
    "jax-distributed",
    "deepspeed-distributed",
    "deepspeed-distributed",
    "mlx-distributed",
    "torchtune-llama3.2-1b",
)


class _RandomJob(NamedTuple):
    """A TrainJob, and what becomes of it."""

    job: Obj
    pause_s: float | None  # after so long it is suspended, and resumed
    end_s: float | None  # after so long it is deleted


@pytest.mark.sized
@pytest.mark.timeout(600)  # which counts the start of the chain as well
async def test_trainjobs_drawn_by_lot(installation: Installation, own_namespace: str) -> None:
    """At every change, whoever began has room for all it lacks, and is whole at once."""
    api = installation.cluster.api
    await make_queue(installation, "drawn", 16, own_namespace)
    runtimes = {it: await api.get(CLUSTER_RUNTIMES, None, it) for it in set(_RUNTIMES)}
    lot = random.Random(SEED)  # noqa: S311 - tests are to be the same each time
    async with (
        installation.cluster.timeline(*_WATCHED, namespace=own_namespace) as seen,
        patience(_ALL_S),
    ):
        turnstile = asyncio.Semaphore(_IN_FLIGHT)
        async with asyncio.TaskGroup() as users:
            for number in range(_JOBS):
                await turnstile.acquire()
                drawn = _random_job(lot, f"job-{number}", own_namespace, runtimes)
                user = users.create_task(_use(installation, seen, drawn))
                user.add_done_callback(lambda _: turnstile.release())
    await until_unused(installation, "drawn")
    await api.delete(QUEUES, None, "drawn")

    unanswered = _unanswered(installation.scheduler.lines())
    found = check_gangs(seen.history(), unanswered)
    assert found.faults == []
    assert unanswered or found.most_passed < _PASSED, found
    assert found.partly > _JOBS  # else it has seen nothing


def _unanswered(lines: Iterable[str]) -> dict[str, str]:
    """Return the pods whose bind had no answer, and the node, as the scheduler logged it."""
    records = [json.loads(line) for line in lines if '"pod bind not answered"' in line]
    return {it["pod"].rpartition("/")[2]: it["node"] for it in records}


def _random_job(
    lot: random.Random, name: str, namespace: str, runtimes: Mapping[str, Obj]
) -> _RandomJob:
    runtime = lot.choice(_RUNTIMES)
    nodes = 1 if runtime.startswith("torchtune") else lot.randint(2, 5)
    seconds = lot.choice(("0.2", "0.5", "1"))
    patches = finishing_pods(runtimes[runtime], seconds)
    if runtime.startswith("deepspeed"):
        slow = {READY_SECONDS: lot.choice(("0.1", "2"))}
        patches = pod_annotations({"node": slow, "launcher": {RUN_SECONDS: seconds}})
    labels = {QUEUE: lot.choice(("default-queue", "drawn"))}
    gpus = lot.choice((1, 1, 2))
    job = Submission(name, runtime, namespace, nodes, gpus, patches, labels=labels)
    fate = lot.random()
    pause_s = lot.uniform(0.1, 4) if fate < _SHARE else None
    end_s = lot.uniform(0.1, 4) if _SHARE <= fate < 2 * _SHARE else None
    return _RandomJob(job.trainjob(), pause_s, end_s)


async def _use(installation: Installation, seen: Timeline, drawn: _RandomJob) -> None:
    """Do what a user does with a TrainJob, until it is over."""
    api, meta = installation.cluster.api, drawn.job["metadata"]
    name, own_namespace = meta["name"], meta["namespace"]
    await api.create(drawn.job)
    if drawn.pause_s is not None:
        await asyncio.sleep(drawn.pause_s)
        await api.merge(TRAINJOBS, own_namespace, name, {"spec": {"suspend": True}})
        await asyncio.sleep(1)
        await api.merge(TRAINJOBS, own_namespace, name, {"spec": {"suspend": False}})
    if drawn.end_s is not None:
        await asyncio.sleep(drawn.end_s)
        await api.delete(TRAINJOBS, own_namespace, name)
    job = Key(TRAINJOBS, own_namespace, name)
    while not _is_over(seen.state.get(job), ends=drawn.end_s is not None):
        await asyncio.sleep(0.1)


def _is_over(job: Obj | None, *, ends: bool) -> bool:
    if job is None:
        return ends
    assert not condition(job, "Failed"), job["metadata"]["name"]
    return not ends and condition(job, "Complete")
