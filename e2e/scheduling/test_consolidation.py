"""Room in several places: a TrainJob is relocated to join it, and loses nothing."""

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from e2e.cluster.resources import PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.fixtures.install import PODGROUPS, QUEUES
from e2e.fixtures.installation import Installation
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    complete,
    events_of,
    failures,
    has_no_annotation,
    is_gone,
    is_suspended,
    kubelets_paused,
    let_finish,
    make_queue,
    on_nodes,
    resumptions,
    submit,
    suspensions,
)
from e2e.size import size

_TIMES: Final = size(2, 5)
_USER: Final = "somebody"  # who applies, and so is known to have changed something
_LONG_ENOUGH_S: Final = 3.0  # for several plans
_SECOND_S: Final = 1.0  # in which two objects are equally old


async def fragment(installation: Installation, namespace: str, seen: Timeline, small: str) -> Obj:
    """Let somebody have 2 GPUs of the node where "large" has none: neither has 8 left."""
    filler = f"beside-{small}"
    await submit(installation.cluster, namespace, Job(filler, namespace, 1, gpus=5))
    await seen.until(on_nodes(filler, 1), "one node is full")
    manifest = await submit(
        installation.cluster, namespace, Job(small, namespace, 1, gpus=2), _USER
    )
    await seen.until(on_nodes(small, 1), f"{small} runs")
    await installation.cluster.api.delete(TRAINJOBS, namespace, filler)
    await seen.until(is_gone(filler), "the room beside the larger one is free again")
    assert nodes_of(seen.state, "large") != nodes_of(seen.state, small)
    return manifest


async def until_settled(installation: Installation, namespace: str, seen: Timeline) -> None:
    """Let "large" have 3 GPUs."""
    await submit(installation.cluster, namespace, Job("large", namespace, 1, gpus=3))
    await seen.until(on_nodes("large", 1), "the larger one runs")
    await asyncio.sleep(_SECOND_S)


def nodes_of(state: State, name: str) -> str:
    """Return the node of the one pod of a TrainJob that is not going; nothing if it has none."""
    pods = [it for key, it in state.items() if key.resource == PODS]
    nodes = [it["spec"].get("nodeName", "") for it in pods if _runs(it, name)]
    return next(filter(None, nodes), "")


async def set_consolidation(installation: Installation, queue: str, answer: str) -> None:
    """Let the queue say whether those in it may be moved."""
    notes = {"metadata": {"annotations": {"trainer-kai.dev/consolidation": answer}}}
    await installation.cluster.api.merge(QUEUES, None, queue, notes)


async def test_a_relocated_trainjob_continues_elsewhere(
    damaged_installation: Installation, damaged_namespace: str
) -> None:
    """Only when its queue offers it; nobody gets the place that is kept for it meanwhile."""
    cluster = damaged_installation.cluster
    await make_queue(cluster, damaged_namespace, 16, damaged_namespace)
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=damaged_namespace) as seen:
        await until_settled(damaged_installation, damaged_namespace, seen)
        await fragment(damaged_installation, damaged_namespace, seen, "small")
        stays, podsets = nodes_of(seen.state, "large"), nodes_of(seen.state, "small")
        await submit(cluster, damaged_namespace, Job("claim", damaged_namespace, 1, gpus=8))
        await asyncio.sleep(_LONG_ENOUGH_S)
        assert not is_suspended("small")(seen.state)

        with kubelets_paused(cluster):  # it has not moved before the rival is there
            await set_consolidation(damaged_installation, damaged_namespace, "on")
            await seen.until(is_suspended("small"), "the smaller one moves")
            await submit(cluster, damaged_namespace, Job("rival", damaged_namespace, 1, gpus=5))
            await seen.until(_waits("rival"), "somebody else wants its place")
        await seen.until(on_nodes("claim", 1), "there is a whole node")
        await seen.until(on_nodes("small", 1), "and whoever moved has its place")
        assert (nodes_of(seen.state, "claim"), nodes_of(seen.state, "small")) == (podsets, stays)
        assert not nodes_of(seen.state, "rival")
        await let_finish(cluster, seen, "claim", 1)
        await seen.until(on_nodes("rival", 1), "the rival comes after it")
        history = seen.history()

        assert failures(seen.state, "small") == (0, 0)
        assert has_no_annotation("small", "trainer-kai.dev/evicted-by")(seen.state)
        events = await events_of(cluster, damaged_namespace, "small")
        assert (
            "/small is relocated, and resources elsewhere are reserved for it" in events["Evicted"]
        )
        events = await events_of(cluster, damaged_namespace, "claim")
        assert "small (consolidation)" in events["Evicting"]
    times = [(suspensions(history, it), resumptions(history, it)) for it in ("small", "large")]
    assert times == [(1, 1), (0, 0)]


@pytest.mark.sized
async def test_killed_during_a_relocation(
    damaged_installation: Installation, damaged_namespace: str
) -> None:
    """Whoever leads next knows what is kept, though there are no pods to tell it by."""
    cluster = damaged_installation.cluster
    await make_queue(cluster, damaged_namespace, 16, damaged_namespace)
    await set_consolidation(damaged_installation, damaged_namespace, "on")
    async with cluster.timeline(*WATCHED, namespace=damaged_namespace) as seen:
        await until_settled(damaged_installation, damaged_namespace, seen)
        for i in range(_TIMES):
            small, claim, rival = (f"{name}-{i}" for name in ("small", "claim", "rival"))
            await fragment(damaged_installation, damaged_namespace, seen, small)
            with kubelets_paused(cluster):  # nobody resumes it before its pod is gone
                await submit(
                    cluster, damaged_namespace, Job(claim, damaged_namespace, 1, "1s", gpus=8)
                )
                await seen.until(is_suspended(small), f"it moves, killed {i} times")
                await damaged_installation.scheduler.kill()
            await submit(cluster, damaged_namespace, Job(rival, damaged_namespace, 1, "1s", gpus=5))
            await damaged_installation.scheduler.start()
            await seen.until(on_nodes(small, 1), "whoever moved has its place", 60)
            assert nodes_of(seen.state, small) == nodes_of(seen.state, "large")
            await seen.until(complete(claim, rival), "all have run", 60)
            assert failures(seen.state, small) == (0, 0)
            await cluster.api.delete(TRAINJOBS, damaged_namespace, small)
            await seen.until(is_gone(small), "it is taken away")
        history = seen.history()

    smalls = [f"small-{i}" for i in range(_TIMES)]
    assert [suspensions(history, it) for it in smalls] == [1] * _TIMES
    assert [resumptions(history, it) for it in smalls] == [1] * _TIMES
    assert suspensions(history, "large") == 0


async def test_a_released_reservation_does_not_come_back(
    damaged_installation: Installation, damaged_namespace: str
) -> None:
    """Its user suspends it while it moves, and resumes it when others have that place."""
    cluster = damaged_installation.cluster
    await make_queue(cluster, damaged_namespace, 16, damaged_namespace)
    await set_consolidation(damaged_installation, damaged_namespace, "on")
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=damaged_namespace) as seen:
        await until_settled(damaged_installation, damaged_namespace, seen)
        theirs = await fragment(damaged_installation, damaged_namespace, seen, "small")
        with kubelets_paused(cluster):  # nobody leads any more before it has left
            await submit(cluster, damaged_namespace, Job("claim", damaged_namespace, 1, gpus=8))
            await seen.until(is_suspended("small"), "it moves")
            await damaged_installation.scheduler.kill()
        await seen.until(_has_reservation, "its place is kept")
        theirs["spec"]["suspend"] = True
        await cluster.api.apply(theirs, _USER)
        await submit(cluster, damaged_namespace, Job("rival", damaged_namespace, 1, gpus=5))
        await damaged_installation.scheduler.start()
        await seen.until(on_nodes("claim", 1), "there is a whole node", 60)
        await seen.until(on_nodes("rival", 1), "and the place that was kept is another's")
        await seen.until(lambda state: not _has_reservation(state), "that is written on its group")

        theirs["spec"]["suspend"] = False
        await cluster.api.apply(theirs, _USER)
        await seen.until(_waits("small"), "it is resumed, and there is no room")
        await asyncio.sleep(_LONG_ENOUGH_S)
        assert not nodes_of(seen.state, "small")
        await cluster.api.delete(TRAINJOBS, damaged_namespace, "rival")
        await seen.until(on_nodes("small", 1), "it runs when there is room again")
        history = seen.history()
    assert [suspensions(history, it) for it in ("claim", "rival", "large")] == [0, 0, 0]


def _has_reservation(state: State) -> bool:
    groups = [it for key, it in state.items() if key.resource == PODGROUPS]
    return any("trainer-kai.dev/reserved" in it["metadata"]["annotations"] for it in groups)


def _waits(name: str) -> Callable[[State], bool]:
    """Look for a pod that nobody has placed."""

    def is_there(state: State) -> bool:
        pods = [it for key, it in state.items() if key.resource == PODS]
        names = [it["metadata"]["name"] for it in pods if "nodeName" not in it["spec"]]
        return any(it.startswith(f"{name}-") for it in names)

    return is_there


def _runs(pod: Obj, name: str) -> bool:
    meta = pod["metadata"]
    is_its = meta.get("labels", {}).get("jobset.sigs.k8s.io/jobset-name") == name
    return is_its and "deletionTimestamp" not in meta and pod["status"].get("phase") == "Running"
