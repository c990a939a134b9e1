"""TrainJobs that require one rack: with their launcher, by reclaim, and after a node is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.kwok_stages import READY_SECONDS
from e2e.cluster.nodes import RACK_LABEL, NodeShape
from e2e.cluster.resources import NODES, PODS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission, pod_annotations
from e2e.conftest import failed
from e2e.fixtures.install import PODGROUPS, TOPOLOGIES
from e2e.fixtures.installation import Installation, namespace_in, run_installation
from e2e.fixtures.podgroups import QUEUE, pods_in
from e2e.fixtures.trainjobs import (
    WATCHED,
    bare_pod,
    end_stage_now,
    events_of,
    failures,
    has_node,
    make_queue,
    on_nodes,
    suspensions,
    was_suspended,
)
from e2e.scheduling.test_why import sentences_of

_GPUS: Final = 4  # of each node, and of each pod: one pod fills a node
_IN_ONE_RACK: Final = {
    "kai.scheduler/topology": "racks",
    "kai.scheduler/topology-required-placement": "rack",
}
_STALE_AT_ONCE: Final = {"kai.scheduler/staleness-grace-period": "1s"}
_HOSTFILE: Final = "/api/v1/namespaces/{}/configmaps/train-mpi-hostfile"
_STALE_S: Final = 60.0
_SECOND_S: Final = 1.0  # in which two objects are equally old


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def racks_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain with two racks of three nodes with four GPUs each."""
    async with run_installation("test-racks", tmp_path_factory.mktemp("racks"), 0) as shared:
        for rack in ("left", "right"):
            await shared.cluster.add_nodes(3, _shape(rack), prefix=rack)
        await shared.cluster.api.request("POST", TOPOLOGIES.path(), _topology())
        await make_queue(shared.cluster, "owner", 4 * _GPUS)
        await make_queue(shared.cluster, "borrower", 0)
        yield shared
        if failed(request.config):
            shared.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def racks_namespace(racks_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there."""
    async with namespace_in(racks_installation, "owner", "borrower") as name:
        yield name


def _topology() -> Obj:
    levels = [{"nodeLabel": RACK_LABEL, "alias": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    return {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": "racks"},
        "spec": {"levels": levels},
    }


def _gang(namespace: str, name: str, queue: str, nodes: int, **annotations: str) -> Obj:
    """Return a TrainJob in one rack that never ends, with a whole node for each pod."""
    labels, wanted = {QUEUE: queue}, {**_IN_ONE_RACK, **annotations}
    runtime = "torch-distributed"
    return Submission(
        name, runtime, namespace, nodes, _GPUS, None, labels=labels, annotations=wanted
    ).trainjob()


def _filler(namespace: str, name: str, queue: str, rack: str) -> Obj:
    """Return a pod on its own that fills a node of a rack."""
    pod = bare_pod(namespace, name, queue, _GPUS)
    pod["spec"]["nodeSelector"] = {RACK_LABEL: rack}
    return pod


async def test_a_launcher_sits_in_the_rack_of_its_workers(
    racks_installation: Installation, racks_namespace: str
) -> None:
    """Its place is kept there while it is expected, and pods that come meanwhile do not get it.

    The hostfile lists it last, and so it is placed last (docs/topology.md).
    """
    cluster = racks_installation.cluster
    runtime = "deepspeed-distributed"
    slow = pod_annotations({"node": {READY_SECONDS: "600s"}})
    job = Submission(
        *("train", runtime, racks_namespace, 3, _GPUS, slow),
        labels={QUEUE: "owner"},
        annotations=_IN_ONE_RACK,
    )
    async with cluster.timeline(*WATCHED, namespace=racks_namespace) as seen:
        await cluster.api.create(_filler(racks_namespace, "full", "owner", "right"))
        await seen.until(has_node("full"), "one rack has two nodes left")
        await cluster.api.create(job.trainjob())
        await seen.until(on_nodes("train", 2), "the workers run")
        for i in range(3):
            await cluster.api.create(bare_pod(racks_namespace, f"later-{i}", "borrower", _GPUS))
        await seen.until(lambda state: len(_nodes(state, "later")) == 2, "two pods come meanwhile")
        await end_stage_now(cluster, _pods(seen.state, "train"), READY_SECONDS)
        await seen.until(on_nodes("train", 3), "the launcher runs, too")
        hosts = await cluster.api.request("GET", _HOSTFILE.format(racks_namespace))

        assert _racks(seen.state, "train") == ["left"] * 3
        assert _racks(seen.state, "later") == ["right"] * 2
    ranks = [line.partition(".")[0] for line in hosts["data"]["hostfile"].splitlines()]
    assert ranks == ["train-node-0-0", "train-node-0-1", "train-launcher-0-0"]


async def test_the_only_possible_rack_is_reclaimed(
    racks_installation: Installation, racks_namespace: str
) -> None:
    """The newer TrainJob stays: with its resources no rack would be free."""
    cluster = racks_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=racks_namespace) as seen:
        await cluster.api.create(_filler(racks_namespace, "full", "owner", "right"))
        await seen.until(has_node("full"), "one rack has two nodes left")
        for name, nodes in (("older", 3), ("newer", 2)):
            await cluster.api.create(_gang(racks_namespace, name, "borrower", nodes))
            await seen.until(on_nodes(name, nodes), f"{name} borrows")
            await asyncio.sleep(_SECOND_S)
        await cluster.api.create(_gang(racks_namespace, "train", "owner", 3))
        await seen.until(on_nodes("train", 3), "it has the rack of the older one")
        events = await events_of(cluster, racks_namespace, "older")
        history = seen.history()

        assert _racks(seen.state, "train") == ["left"] * 3
        assert _racks(seen.state, "newer") == ["right"] * 2
        assert failures(seen.state, "older") == (0, 0)
    assert [suspensions(history, it) for it in ("older", "newer")] == [1, 0]
    assert "queue borrower was over its fair share" in events["Evicted"]


async def test_a_lost_pod_is_replaced_in_its_rack(
    racks_installation: Installation, racks_namespace: str
) -> None:
    """The other rack has more nodes free; `why` names no eviction."""
    cluster = racks_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=racks_namespace) as seen:
        await cluster.api.create(_gang(racks_namespace, "train", "owner", 2))
        await seen.until(on_nodes("train", 2), "it runs")
        before = _racks(seen.state, "train")
        async with _lost_node(racks_installation, racks_namespace, seen, "train"):
            await seen.until(on_nodes("train", 2), "the lost pod is replaced")
            output = await _why(racks_installation, racks_namespace, "train")

    assert _racks(seen.state, "train") == before
    assert suspensions(seen.history(), "train") == 0
    assert "2 running" in output
    assert "evicted" not in output


async def test_a_gang_whose_rack_is_too_small_moves_as_a_whole(
    racks_installation: Installation, racks_namespace: str
) -> None:
    """Its rack has no other node: it is evicted, and planned again in another one."""
    cluster = racks_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace=racks_namespace) as seen:
        await cluster.api.create(_gang(racks_namespace, "train", "owner", 3, **_STALE_AT_ONCE))
        await seen.until(on_nodes("train", 3), "it runs")
        (before,) = set(_racks(seen.state, "train"))
        async with _lost_node(racks_installation, racks_namespace, seen, "train"):
            await seen.until(was_suspended(seen, "train"), "it is evicted as a whole", _STALE_S)
            await seen.until(on_nodes("train", 3), "it runs again", _STALE_S)
            output = await _why(racks_installation, racks_namespace, "train")

    (after,) = set(_racks(seen.state, "train"))
    assert after != before
    assert "3 running" in output
    assert "was evicted at" in output
    assert "(action stalegangeviction, rule 40f)" in output


@asynccontextmanager
async def _lost_node(
    installation: Installation, namespace: str, seen: Timeline, job: str
) -> AsyncIterator[None]:
    """Lose the first node of a TrainJob with its pods; afterwards it is there again."""
    api = installation.cluster.api
    pod = _pods(seen.state, job)[0]
    name = pod["spec"]["nodeName"]
    await api.delete(NODES, None, name)
    # Kubernetes deletes it a minute later.
    await api.delete(PODS, namespace, pod["metadata"]["name"], gracePeriodSeconds=0)
    await seen.settle()
    yield
    await installation.cluster.add_nodes(1, _shape(_rack(name)), prefix=f"{name}-again")


def _shape(rack: str) -> NodeShape:
    return NodeShape(gpus=_GPUS, labels={RACK_LABEL: rack})


def _racks(state: State, name: str) -> list[str]:
    """Return the racks of the pods whose names begin so."""
    return [_rack(node) for node in _nodes(state, name)]


def _rack(node: str) -> str:
    return node.partition("-")[0]


def _nodes(state: State, name: str) -> list[str]:
    nodes = [it["spec"].get("nodeName") for it in _pods(state, name)]
    return [node for node in nodes if node]


def _pods(state: State, name: str) -> list[Obj]:
    """Return the pods whose names begin so and that are not going."""
    pods = [it for it in pods_in(state) if it["metadata"]["name"].startswith(f"{name}-")]
    return [it for it in pods if "deletionTimestamp" not in it["metadata"]]


async def _why(installation: Installation, namespace: str, name: str) -> str:
    kubeconfig = installation.cluster.kubeconfig
    output = await sentences_of("why", name, "-n", namespace, kubeconfig=kubeconfig)
    assert (output.code, output.err) == (0, "")
    return output.out
