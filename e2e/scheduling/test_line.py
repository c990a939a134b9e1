"""The order of a queue on the real chain: what a large gang waits for while small ones come."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest
import pytest_asyncio

from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import NODES, PODS, TRAINJOBS
from e2e.cluster.timeline import State, Timeline
from e2e.conftest import failed
from e2e.fixtures.install import PODGROUPS, QUEUES
from e2e.fixtures.installation import Installation, namespace_in, run_installation
from e2e.fixtures.podgroups import groups_in
from e2e.fixtures.trainjobs import WATCHED, Job, has_failed, make_queue, on_nodes, submit

_LINE: Final = "trainer-kai.dev/line"
_ORDER: Final = "trainer-kai.dev/queue-order"
_AFTER_S: Final = 3  # the least turn is ten minutes, so also a slow machine gathers in time
_SETTINGS: Final = {"TRAINER_KAI_KEPT_ROOM_AFTER_S": str(_AFTER_S)}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def line_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with two nodes of eight GPUs, and a queue that owns all."""
    folder = tmp_path_factory.mktemp("line")
    async with run_installation("test-line", folder, 2, 8, _SETTINGS) as shared:
        await make_queue(shared.cluster, "team", 16)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(line_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there; it is empty when the next test begins."""
    async with namespace_in(line_installation, "team") as name:
        yield name


async def order(installation: Installation, value: str | None) -> None:
    fields = {"metadata": {"annotations": {_ORDER: value}}}
    await installation.cluster.api.merge(QUEUES, None, "team", fields)


async def end(installation: Installation, namespace: str, name: str) -> None:
    await installation.cluster.api.delete(TRAINJOBS, namespace, name)


async def full_cluster(
    installation: Installation, namespace: str, seen: Timeline, deadline_s: int = 0
) -> None:
    """Fill both nodes; a gang waits for both of them, and a newer TrainJob for one.

    The deadline is of those that run.
    """
    cluster = installation.cluster
    for name in ("first", "second"):
        await submit(cluster, namespace, Job(name, "team", 1, gpus=8, deadline_s=deadline_s))
        await seen.until(on_nodes(name, 1), f"{name} runs", 60)
    await submit(cluster, namespace, Job("older", "team", 2, gpus=8))
    await seen.until(has_reason("older", "NoCapacity"), "it waits for both nodes", 60)
    await asyncio.sleep(1)  # ages are in whole seconds; of equal ones the name decides
    await submit(cluster, namespace, Job("newer", "team", 1, gpus=8))
    await seen.until(has_reason("newer", "NoCapacity", "WaitingForHead"), "it waits", 60)


async def free_a_node_for_the_next(
    installation: Installation, namespace: str, seen: Timeline
) -> None:
    """Wait until the gang is next, and end one of the TrainJobs that run."""
    await seen.until(
        lambda state: bool(line(state, "older").get("nextSince")), "next", _AFTER_S + 60
    )
    await end(installation, namespace, "first")


async def test_the_older_gang_starts_first(line_installation: Installation, namespace: str) -> None:
    """The nodes are kept for it as they are freed, also after the leader was killed."""
    await order(line_installation, "reserve")
    cluster = line_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=namespace) as seen:
        await full_cluster(line_installation, namespace, seen)
        await free_a_node_for_the_next(line_installation, namespace, seen)
        await seen.until(lambda state: line(state, "older").get("gpus") == 8000, "kept", 60)
        await seen.until(says("newer", "are idle but kept for"), "the newer one is told", 60)
        await seen.until(says("older", "It is next in queue team"), "the older one is told", 60)
        await line_installation.scheduler.kill()
        await line_installation.scheduler.start()
        await end(line_installation, namespace, "second")
        await seen.until(on_nodes("older", 2), "it starts on both nodes", 120)
        assert not ever_on_a_node(seen, "newer")
        await seen.until(lambda state: not line(state, "older"), "its place is over", 60)


async def test_what_ends_by_force_starts_on_kept_room(
    line_installation: Installation, namespace: str
) -> None:
    """Before the planned start; the one that was ended does not come again, and the gang starts."""
    await order(line_installation, "reserve")
    cluster = line_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=namespace) as seen:
        await full_cluster(line_installation, namespace, seen, deadline_s=600)
        await free_a_node_for_the_next(line_installation, namespace, seen)
        await seen.until(says("newer", "a workload that ends by force before"), "planned", 60)
        await submit(cluster, namespace, Job("short", "team", 1, gpus=8, deadline_s=30))
        await seen.until(on_nodes("short", 1), "it starts on the kept node", 60)
        await end(line_installation, namespace, "second")
        await seen.until(has_failed("short"), "its time is up", 90)
        await seen.until(on_nodes("older", 2), "the gang starts on both nodes", 120)
        assert not ever_on_a_node(seen, "newer")


async def test_a_kept_node_that_dies_is_given_up(
    line_installation: Installation, namespace: str
) -> None:
    """The gang does not fit on the other node alone; it starts when another node has come."""
    await order(line_installation, "reserve")
    cluster = line_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=namespace) as seen:
        await full_cluster(line_installation, namespace, seen)
        await free_a_node_for_the_next(line_installation, namespace, seen)
        await seen.until(lambda state: line(state, "older").get("gpus") == 8000, "kept", 60)
        (node,) = line(seen.state, "older")["nodes"]
        await cluster.api.delete(NODES, None, node)
        await seen.until(lambda state: not line(state, "older").get("gpus"), "given up", 60)
        assert not ever_on_a_node(seen, "newer")
        await end(line_installation, namespace, "newer")
        await cluster.add_nodes(1, NodeShape(gpus=8), prefix="other")
        await end(line_installation, namespace, "second")
        await seen.until(on_nodes("older", 2), "it starts on both nodes", 60)


async def test_best_effort_is_as_before(line_installation: Installation, namespace: str) -> None:
    """The newer one takes the first node that is freed, and nothing is written."""
    await order(line_installation, None)
    cluster = line_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=namespace) as seen:
        await full_cluster(line_installation, namespace, seen)
        await end(line_installation, namespace, "first")
        await seen.until(on_nodes("newer", 1), "it takes the node", 60)
        assert not any(_LINE in it.obj["metadata"].get("annotations", {}) for it in seen.history())


async def test_nothing_passes_the_head_of_a_strict_queue(
    line_installation: Installation, namespace: str
) -> None:
    """The node that is freed stays idle until the head has started."""
    await order(line_installation, "strict")
    cluster = line_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=namespace) as seen:
        await full_cluster(line_installation, namespace, seen)
        await end(line_installation, namespace, "first")
        await seen.until(has_reason("newer", "WaitingForHead"), "it waits for the head", 60)
        await end(line_installation, namespace, "second")
        await seen.until(on_nodes("older", 2), "the head starts", 60)
        assert not ever_on_a_node(seen, "newer")


def ever_on_a_node(seen: Timeline, name: str) -> bool:
    """Say whether a pod of a TrainJob ever had a node."""
    return any(
        it.key.resource == PODS
        and it.key.name.startswith(f"{name}-")
        and bool(it.obj["spec"].get("nodeName"))
        for it in seen.history()
    )


def line(state: State, name: str) -> dict[str, Any]:
    """Return the place of a TrainJob in the line; empty if it has none."""
    (text,) = [it["metadata"].get("annotations", {}).get(_LINE) for it in groups(state, name)] or [
        None
    ]
    place: dict[str, Any] = json.loads(text) if text else {}
    return place


def groups(state: State, name: str) -> list[Any]:
    return [it for it in groups_in(state) if it["metadata"]["name"].startswith(f"pg-{name}-")]


def reasons(state: State, name: str) -> list[dict[str, str]]:
    conditions = [
        it.get("status", {}).get("schedulingConditions") or [] for it in groups(state, name)
    ]
    return [one["reasons"][-1] for them in conditions for one in them]


def has_reason(name: str, *wanted: str) -> Callable[[State], bool]:
    return lambda state: any(it["reason"] in wanted for it in reasons(state, name))


def says(name: str, text: str) -> Callable[[State], bool]:
    return lambda state: any(text in it["message"] for it in reasons(state, name))
