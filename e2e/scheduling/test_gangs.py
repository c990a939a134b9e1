"""All together or not at all, on a cluster that is too small for everybody."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from e2e.cluster.kwok_stages import FAIL_SECONDS, READY_SECONDS
from e2e.cluster.nodes import NodeShape
from e2e.cluster.patience import slowdown
from e2e.cluster.resources import CLUSTER_RUNTIMES, NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State, replay
from e2e.cluster.trainjobs import Submission, condition, pod_annotations
from e2e.fixtures.install import PODGROUPS, QUEUES
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, finishing_pods, is_complete, pods_in
from e2e.fixtures.queues import grant_queue_use, queue
from e2e.fixtures.runtimes import make_runtime
from e2e.fixtures.trainjobs import let_finish

_WATCHED = (TRAINJOBS, PODGROUPS, PODS)
_OF_JOB = "jobset.sigs.k8s.io/jobset-name"


async def submit(
    installation: Installation,
    namespace: str,
    name: str = "job",
    nodes: int = 4,
    gpus: int = 1,
    **more: Any,
) -> None:
    """Submit a TrainJob of the plain torch runtime, or of another."""
    runtime = more.pop("runtime", "torch-distributed")
    queue = more.pop("queue", "default-queue")
    patches = more.pop("patches", None)
    if patches is None:
        installed = await installation.cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
        patches = finishing_pods(installed, more.pop("run_for", "1s"))
    job = Submission(
        name, runtime, namespace, nodes, gpus, patches, labels={QUEUE: queue}
    ).trainjob()
    job["spec"] |= more
    await installation.cluster.api.create(job)


def bound(state: State, job: str = "job") -> int:
    """Return how many pods of a TrainJob have a node."""
    return sum(bool(it["spec"].get("nodeName")) for it in _pods_of(state, job))


def _pods_of(state: State, job: str) -> list[Obj]:
    return [it for it in pods_in(state) if it["metadata"]["labels"].get(_OF_JOB) == job]


def reasons(state: State) -> set[str]:
    """Return why groups wait."""
    groups = [it for key, it in state.items() if key.resource == PODGROUPS]
    conditions = (it.get("status", {}).get("schedulingConditions", []) for it in groups)
    return {one["reasons"][-1]["reason"] for some in conditions for one in some}


async def test_a_gang_waits_whole_and_starts_whole(
    one_node_installation: Installation, one_node_namespace: str
) -> None:
    """A node is added: what waited, with its reason, runs, and the reason goes."""
    async with one_node_installation.cluster.timeline(*_WATCHED, NODES) as seen:
        await submit(one_node_installation, one_node_namespace, nodes=8)
        await seen.until(lambda state: reasons(state) == {"NoCapacity"}, "it says why it waits")
        assert bound(seen.state) == 0
        assert "NoCapacity" in await _shown_by_kubectl(one_node_installation, one_node_namespace)
        await one_node_installation.cluster.add_nodes(1, NodeShape(gpus=2), prefix="more")
        await seen.until(is_complete, "it is Complete")
        await one_node_installation.cluster.api.delete(NODES, None, "more-0")

    assert reasons(seen.state) == set()
    more = next(it.version for it in seen.history() if it.key.name == "more-0")
    first = next(it.version for it, state in replay(seen.history()) if bound(state))
    assert first > more  # not one pod is bound before there is room for all


async def _shown_by_kubectl(installation: Installation, namespace: str) -> list[str]:
    """Return what `kubectl get podgroup` shows of the only group."""
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
    table = await installation.cluster.api.request("GET", PODGROUPS.path(namespace), accept=accept)
    cells: list[str] = table["rows"][0]["cells"]
    return cells


async def test_two_staged_jobs_and_a_greedy_pod(
    one_node_installation: Installation, one_node_namespace: str
) -> None:
    """Two times three workers and a launcher on six GPUs: never both half, and none is stuck."""
    slow = pod_annotations({"node": {READY_SECONDS: "5s"}, "launcher": {"run-seconds": "1s"}})
    async with one_node_installation.cluster.timeline(
        *_WATCHED, namespace=one_node_namespace
    ) as seen:
        for name in ("one", "two"):
            await submit(
                one_node_installation,
                one_node_namespace,
                name,
                runtime="deepspeed-distributed",
                patches=slow,
            )
        await seen.until(_some_begun, "one of them has begun")
        for i in range(4):
            await one_node_installation.cluster.api.create(greedy(one_node_namespace, i))
            await asyncio.sleep(0.5)
        await seen.until(is_complete, "both are Complete", 90)

    seen.never(lambda state: _is_half(state, "one") and _is_half(state, "two"), "both were half")


def _is_half(state: State, job: str) -> bool:
    """Say whether workers have their place and the launcher has none."""
    names = [it["metadata"]["name"] for it in _pods_of(state, job) if it["spec"].get("nodeName")]
    return bool(names) and not any("launcher" in name for name in names)


def _some_begun(state: State) -> bool:
    return bound(state, "one") > 0 or bound(state, "two") > 0


def greedy(namespace: str, number: int) -> Obj:
    """Return a pod that takes what it gets."""
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "c", "image": "none", "resources": resources}
    meta = {
        "namespace": namespace,
        "name": f"greedy-{number}",
        "labels": {QUEUE: "default-queue"},
    }
    meta["annotations"] = {"run-seconds": "3s"}
    spec = {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def test_a_pod_that_a_stranger_bound(
    one_node_installation: Installation, one_node_namespace: str
) -> None:
    """It counts as bound, the others follow when there is room, and nobody is bound twice."""
    async with one_node_installation.cluster.timeline(
        *_WATCHED, namespace=one_node_namespace
    ) as seen:
        await submit(one_node_installation, one_node_namespace, nodes=8)
        await seen.until(lambda state: len(pods_in(state)) == 8, "all pods are there")
        stranger = pods_in(seen.state)[0]["metadata"]["name"]
        await one_node_installation.cluster.api.bind(one_node_namespace, stranger, "node-0")
        await seen.until(lambda state: bound(state) == 1, "it is bound")
        await one_node_installation.cluster.add_nodes(1, NodeShape(gpus=2), prefix="more")
        await seen.until(lambda state: bound(state) == 8, "the others are bound")
        await seen.until(is_complete, "it is Complete")  # on a node that is gone nothing ends
        await one_node_installation.cluster.api.delete(NODES, None, "more-0")


async def test_the_limit_of_a_queue(
    one_node_installation: Installation, one_node_namespace: str
) -> None:
    """What runs is left alone when it is lowered; what waits starts when it is raised."""
    api = one_node_installation.cluster.api
    await make_queue(one_node_installation, "limited", 2, one_node_namespace)
    async with one_node_installation.cluster.timeline(
        *_WATCHED, namespace=one_node_namespace
    ) as seen:
        await submit(
            one_node_installation,
            one_node_namespace,
            "small",
            nodes=2,
            queue="limited",
            run_for="600s",
        )
        await seen.until(lambda state: bound(state, "small") == 2, "what is within it runs")
        await _limit(one_node_installation, "limited", 1)
        await submit(one_node_installation, one_node_namespace, "large", nodes=3, queue="limited")
        await seen.until(lambda state: reasons(state) == {"ExceedsLimit"}, "the other waits")
        assert bound(seen.state, "small") == 2
        await _limit(one_node_installation, "limited", 6)
        await seen.until(lambda state: bound(state, "large") == 3, "it runs")
        await let_finish(one_node_installation.cluster, seen, "small", 2)
        await seen.until(is_complete, "both are Complete")
    await until_unused(one_node_installation, "limited")
    await api.delete(QUEUES, None, "limited")


async def test_every_end_gives_everything_back(
    one_node_installation: Installation, one_node_namespace: str
) -> None:
    """Suspended or deleted, waiting or running, and when time is up: its queue has nothing left."""
    api = one_node_installation.cluster.api
    await make_queue(one_node_installation, "ending", -1, one_node_namespace)
    async with one_node_installation.cluster.timeline(
        *_WATCHED, namespace=one_node_namespace
    ) as seen:
        for nodes in (6, 8):  # one runs, the other waits
            await submit(
                one_node_installation,
                one_node_namespace,
                nodes=nodes,
                queue="ending",
                run_for="600s",
            )
            await seen.until(_is_settled(nodes), "it runs, or waits")
            await api.merge(TRAINJOBS, one_node_namespace, "job", {"spec": {"suspend": True}})
            await seen.until(lambda state: not pods_in(state), "its pods are gone")
            await until_unused(one_node_installation, "ending")
            await api.merge(TRAINJOBS, one_node_namespace, "job", {"spec": {"suspend": False}})
            await seen.until(_is_settled(nodes), "it runs or waits again")
            await api.delete(TRAINJOBS, one_node_namespace, "job")
            await seen.until(lambda state: not state, "nothing is left")
            await until_unused(one_node_installation, "ending")
        await submit(
            one_node_installation,
            one_node_namespace,
            nodes=8,
            queue="ending",
            run_for="600s",
            activeDeadlineSeconds=3,
        )
        await seen.until(_has_failed, "its time is up")
        await until_unused(one_node_installation, "ending")
    await api.delete(QUEUES, None, "ending")


async def test_every_start_of_many_is_whole(
    one_node_installation: Installation, one_node_namespace: str
) -> None:
    """Its pods fail and all begin anew, twice; in the end nothing is left of it."""
    await make_queue(one_node_installation, "failing", -1, one_node_namespace)
    await make_runtime(one_node_installation.cluster, one_node_namespace, "failing", restarts=2)
    # Long enough for all four to be bound before the first of them fails.
    fails = {FAIL_SECONDS: f"{3 * slowdown():.0f}s"}
    patches, labels = pod_annotations({"node": fails}), {QUEUE: "failing"}
    job = Submission(
        "job", "failing", one_node_namespace, 4, 1, patches, labels=labels, kind="TrainingRuntime"
    )
    async with one_node_installation.cluster.timeline(
        *_WATCHED, namespace=one_node_namespace
    ) as seen:
        await one_node_installation.cluster.api.create(job.trainjob())
        await seen.until(_has_failed, "it has failed for good", 90)
        await until_unused(one_node_installation, "failing")
    await one_node_installation.cluster.api.delete(QUEUES, None, "failing")

    most: Counter[str] = Counter()
    for _, state in replay(seen.history()):
        most |= Counter(_attempt(pod) for pod in pods_in(state) if pod["spec"].get("nodeName"))
    assert most == {"0": 4, "1": 4, "2": 4}


def _attempt(pod: Obj) -> str:
    attempt: str = pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"]
    return attempt


def _has_failed(state: State) -> bool:
    jobs = [it for key, it in state.items() if key.resource == TRAINJOBS]
    return bool(jobs) and all(condition(job, "Failed") for job in jobs)


def _is_settled(nodes: int) -> Callable[[State], bool]:
    def look(state: State) -> bool:
        return bound(state) == nodes or reasons(state) == {"NoCapacity"}

    return look


async def make_queue(installation: Installation, name: str, gpus: int, namespace: str) -> None:
    """Make a closed queue of the default tree that may have so many GPUs, for a namespace."""
    made = queue(name, 0, gpus, "default-parent-queue")
    await installation.cluster.api.request("POST", QUEUES.path(), made)
    await grant_queue_use(installation.cluster, name, namespace)


async def _limit(installation: Installation, name: str, gpus: int) -> None:
    fields = {"spec": {"resources": {"gpu": {"limit": gpus}}}}
    await installation.cluster.api.merge(QUEUES, None, name, fields)


async def until_unused(installation: Installation, name: str) -> None:
    """Wait until a queue says that nothing of it is used or asked for."""
    async with installation.cluster.timeline(QUEUES) as seen:

        def look(state: State) -> bool:
            found = [it for key, it in state.items() if key.name == name]
            status = found[0].get("status", {}) if found else {}
            amounts = [*status.get("allocated", {}).values(), *status.get("requested", {}).values()]
            return bool(amounts) and set(amounts) == {"0"}

        await seen.until(look, "its queue has nothing left")
