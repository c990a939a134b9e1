"""What a pod can be told to do: be ready late, end well, fail."""

import itertools

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import FAIL_SECONDS, READY_SECONDS, RUN_SECONDS
from e2e.cluster.resources import PODS, Obj
from e2e.cluster.timeline import Moment, Timeline

# annotations -> the lives (phase, ready) a pod goes through once it is bound
LIVES = {
    "told nothing, it runs and stays": ({}, [("Running", True)]),
    "it succeeds after its time": (
        {RUN_SECONDS: "3s"},
        [("Running", True), ("Succeeded", False)],
    ),
    "a number without a unit is seconds": (
        {RUN_SECONDS: "3"},
        [("Running", True), ("Succeeded", False)],
    ),
    "it fails after its time": ({FAIL_SECONDS: "3s"}, [("Running", True), ("Failed", False)]),
    "failing outranks succeeding": (
        {FAIL_SECONDS: "3s", RUN_SECONDS: "0s"},
        [("Running", True), ("Failed", False)],
    ),
    "it runs and is ready later": (
        {READY_SECONDS: "3s"},
        [("Running", False), ("Running", True)],
    ),
    "its run time counts from being ready": (
        {READY_SECONDS: "3s", RUN_SECONDS: "3s"},
        [("Running", False), ("Running", True), ("Succeeded", False)],
    ),
}


@pytest.mark.parametrize("life", LIVES)
async def test_a_pod_lives_as_its_annotations_say(
    life: str, cluster: Cluster, namespace: str
) -> None:
    """The lives of a bound pod follow one another as told, each not before its time."""
    annotations, wanted = LIVES[life]

    async with cluster.timeline(PODS, namespace=namespace) as seen:
        await cluster.api.create(_pod(namespace, annotations))
        await cluster.api.bind(namespace, "pod", "node-0")
        await seen.until(lambda _: _lives(seen)[-1:] == wanted[-1:], f"its last life {wanted[-1]}")

    assert _lives(seen) == wanted
    times = [at for at, _ in _changes(seen)]
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(times))


def _pod(namespace: str, annotations: dict[str, str]) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": "pod", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def _lives(seen: Timeline) -> list[tuple[str, bool]]:
    return [life for _, life in _changes(seen)]


def _changes(seen: Timeline) -> list[tuple[float, tuple[str, bool]]]:
    """Return when each new life began; what happens before the pod runs is none."""
    changes: list[tuple[float, tuple[str, bool]]] = []
    for moment in seen.moments:
        life = _life(moment)
        if life[0] != "Pending" and [life] != [known for _, known in changes[-1:]]:
            changes.append((moment.at_s, life))
    return changes


def _life(moment: Moment) -> tuple[str, bool]:
    status = moment.obj["status"]
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    ready = status["phase"] == "Running" and conditions.get("Ready") == "True"
    return status["phase"], ready
