"""Gangs that run and lose a pod: repaired, or off their nodes as a whole, and never destroyed."""

from collections.abc import Callable

import pytest

from e2e.cluster.patience import slowdown
from e2e.cluster.resources import CLUSTER_RUNTIMES, NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission, condition
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, finishing_pods, pods_in
from e2e.fixtures.trainjobs import end_stage_now, was_suspended

_GRACE = {"TRAINER_KAI_STALENESS_GRACE_S": f"{3 * slowdown():g}"}
_SOON = pytest.mark.parametrize("own_installation", [_GRACE], indirect=True, ids=["a short grace"])


async def start(installation: Installation) -> None:
    """Submit a TrainJob that fills both nodes, and runs for longer than any test."""
    runtime = "torch-distributed"
    installed = await installation.cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    patches = finishing_pods(installed, "600s")
    labels = {QUEUE: "default-queue"}
    job = Submission("job", runtime, "room", 2, 8, patches, labels=labels)
    await installation.cluster.api.create(job.trainjob())


def running(count: int, on: set[str] | None = None) -> Callable[[State], bool]:
    """Return a test whether so many pods run, and nowhere else."""

    def look(state: State) -> bool:
        alive = [it for it in pods_in(state) if not it["metadata"].get("deletionTimestamp")]
        nodes = [it["spec"].get("nodeName") for it in alive]
        is_there = len(nodes) == count and all(nodes)
        return is_there and (on is None or set(nodes) == on)

    return look


async def test_the_place_of_a_lost_pod_is_its_successors(own_installation: Installation) -> None:
    """Somebody greedy waits for it all the time, and does not get it."""
    api = own_installation.cluster.api
    async with own_installation.cluster.timeline(
        TRAINJOBS, PODGROUPS, PODS, namespace="room"
    ) as seen:
        await start(own_installation)
        await seen.until(running(2), "the gang runs")
        await api.create(_greedy())
        victim = next(it for it in pods_in(seen.state) if it["metadata"]["name"] != "greedy")
        await api.delete(PODS, "room", victim["metadata"]["name"])
        await seen.until(
            lambda state: _uids(state) != {victim["metadata"]["uid"]} and _gang_runs(state, victim),
            "the gang is whole again",
        )

    assert [it["metadata"]["name"] for it in pods_in(seen.state) if not _node(it)] == ["greedy"]


@_SOON
async def test_an_irreparable_gang_is_evicted_whole_and_comes_back(
    own_installation: Installation,
) -> None:
    """A node is cordoned for good: the TrainJob is suspended for a moment, and waits unharmed."""
    api = own_installation.cluster.api
    async with own_installation.cluster.timeline(
        TRAINJOBS, PODGROUPS, PODS, namespace="room"
    ) as seen:
        await start(own_installation)
        await seen.until(running(2), "the gang runs")
        victim = pods_in(seen.state)[0]
        await api.merge(NODES, None, _node(victim), {"spec": {"unschedulable": True}})
        await api.delete(PODS, "room", victim["metadata"]["name"])
        await seen.until(was_suspended(seen, "job"), "the TrainJob is suspended")
        await seen.until(lambda state: not _is_suspended(state), "it is resumed", 60)
        await seen.settle()  # its old pods are gone
        job = await api.get(TRAINJOBS, "room", "job")
        assert "trainer-kai.dev/evicted-by" not in job["metadata"].get("annotations", {})
        await seen.until(lambda state: len(pods_in(state)) == 2, "both pods wait")
        assert [_node(it) for it in pods_in(seen.state)] == ["", ""]
        await end_stage_now(own_installation.cluster, pods_in(seen.state))
        await api.merge(NODES, None, _node(victim), {"spec": {"unschedulable": None}})
        await seen.until(_is_complete, "the TrainJob is Complete", 60)


def _is_suspended(state: State) -> bool:
    return any(it["spec"].get("suspend") for key, it in state.items() if key.resource == TRAINJOBS)


def _is_complete(state: State) -> bool:
    jobs = [it for key, it in state.items() if key.resource == TRAINJOBS]
    assert not any(condition(job, "Failed") for job in jobs)
    return bool(jobs) and all(condition(job, "Complete") for job in jobs)


def _gang_runs(state: State, lost: Obj) -> bool:
    others = [it for it in pods_in(state) if it["metadata"]["name"] != "greedy"]
    alive = [it for it in others if it["metadata"]["uid"] != lost["metadata"]["uid"]]
    return len(alive) == 2 and all(_node(it) for it in alive)


def _uids(state: State) -> set[str]:
    return {it["metadata"]["uid"] for it in pods_in(state)}


def _node(pod: Obj) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def _greedy() -> Obj:
    container = {
        "name": "c",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "greedy", "namespace": "room", "labels": {QUEUE: "default-queue"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
    }
