"""Our processes are killed at random while TrainJobs come in; in the end all is well."""

import asyncio
import itertools
import random
from collections import Counter
from typing import Final, NamedTuple

import pytest

from e2e.cluster.resources import EVENTS, JOBSETS, PODS, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import PODGROUP, SUBGROUP, groups_in, podgroup_summary, pods_in
from e2e.size import SEED, size

_JOBS: Final = size(24, 200)
_CRASHES: Final = 4  # at least
_OWNER: Final = "jobset.sigs.k8s.io/jobset-name"


def _is_expected(event: Obj) -> bool:
    """Say whether an event is Trainer's while we are away, or of what is not ours."""
    if event["regarding"]["kind"] == "PersistentVolumeClaim":
        return True  # KWOK has no volumes
    if event["reason"] in ("JobCreationFailed", "FailedToCreateEndpoint"):
        return "already exists" in event["note"]  # their controllers' caches may be stale
    return bool(event["reason"] == "TrainJobResourcesCreationFailed")


class _Kind(NamedTuple):
    """A runtime, how many nodes of it, and what there is while nobody binds."""

    runtime: str
    nodes: int
    pods: int
    groups: list[str]


_KINDS: Final = (
    _Kind("torch-distributed", 2, 2, ["2 node"]),
    _Kind("deepspeed-distributed", 3, 2, ["2 node + 1 launcher"]),
    _Kind(
        "torchtune-llama3.2-1b", 1, 2, ["1 dataset-initializer", "1 model-initializer", "1 node"]
    ),
)


@pytest.mark.sized
async def test_crashes_lose_nothing_and_double_nothing(
    own_webhook_installation: WebhookInstallation,
) -> None:
    """Each TrainJob has exactly its PodGroups, each pod is in one; nothing else is warned of."""
    cluster = own_webhook_installation.cluster
    kinds = list(itertools.islice(itertools.cycle(_KINDS), _JOBS))
    jobs = [
        Submission(f"job-{i:03d}", it.runtime, "default", it.nodes) for i, it in enumerate(kinds)
    ]
    pods = sum(kind.pods for kind in kinds)
    groups = sum(len(kind.groups) for kind in kinds)
    over = asyncio.Event()
    async with cluster.timeline(JOBSETS, PODGROUPS, PODS) as seen:
        crashing = asyncio.create_task(_crash(own_webhook_installation, over))
        try:
            await cluster.api.create_all((job.trainjob() for job in jobs), in_flight=8)
            await seen.until(lambda state: len(_jobsets(state)) == _JOBS, "all JobSets exist", 120)
        finally:
            over.set()
            crashes = await crashing
        await seen.until(lambda state: len(groups_in(state)) >= groups, "all groups exist", 60)
        await seen.until(lambda state: _assigned(state) >= pods, "all pods are assigned", 60)

    assert crashes >= _CRASHES
    assert len(seen.objects(PODS)) == pods
    expected = Counter({job.name: 0 for job in jobs})
    made: dict[str, list[str]] = {name: [] for name in expected}
    for group in seen.objects(PODGROUPS):
        made[group["metadata"]["labels"][_OWNER]].append(podgroup_summary(group))
    for job, kind in zip(jobs, kinds, strict=True):
        assert sorted(made[job.name]) == sorted(kind.groups)
    assert len({m.key for m in seen.moments if m.key.resource == PODGROUPS}) == groups
    known = {group["metadata"]["name"] for group in seen.objects(PODGROUPS)}
    assert all(pod["metadata"]["annotations"][PODGROUP] in known for pod in seen.objects(PODS))
    events, _ = await cluster.api.list(EVENTS)
    assert [it["note"] for it in events if it["type"] == "Warning" and not _is_expected(it)] == []


async def _crash(installed: WebhookInstallation, over: asyncio.Event) -> int:
    """Kill one or the other every now and then, and start it again; return how often."""
    chance = random.Random(SEED)  # noqa: S311 - which one, and when: no secret
    count = 0
    while not over.is_set() or count < _CRASHES:
        victim = chance.choice([installed.webhook, installed.podgrouper])
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        await victim.kill()
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        await victim.start()
        count += 1
    return count


def _jobsets(state: State) -> list[Obj]:
    return [obj for key, obj in state.items() if key.resource == JOBSETS]


def _assigned(state: State) -> int:
    return sum(
        PODGROUP in pod["metadata"].get("annotations", {}) and SUBGROUP in pod["metadata"]["labels"]
        for pod in pods_in(state)
    )
