"""What Kueue does to a TrainJob, played by the test: held, admitted to a flavour, taken back.

Kueue suspends a TrainJob at once. When there is quota it writes node selector, tolerations and
scheduling gates into an entry of its own in runtimePatches and resumes it, in one update; the gates
of pods are taken away later, one by one. To take it back it suspends it, and removes its entry when
it has no pods. (JobSet leaves what its Jobs have: who was gated once is gated again.)
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest_asyncio

from e2e.cluster.api import retry_while_stale
from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission
from e2e.conftest import next_name
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, finishing_pods, groups_in, is_complete, pods_in
from e2e.scheduling.test_why import sentences_of

_GATE: Final = "kueue.x-k8s.io/topology"
_MANAGER: Final = "kueue.x-k8s.io/manager"
_LABELS: Final = {QUEUE: "default-queue", "kueue.x-k8s.io/queue-name": "lab"}
_FLAVOURS: Final = ("spot", "firm")
_STILL: Final = "is still active"  # what Trainer's webhook says of a JobSet as it last heard of it


@pytest_asyncio.fixture(loop_scope="session")
async def flavours(installation: Installation) -> AsyncIterator[dict[str, str]]:
    """Return a node of each flavour, which takes nobody who does not tolerate it."""
    nodes = {}
    for flavour in _FLAVOURS:
        taint = {"key": "flavour", "value": flavour, "effect": "NoSchedule"}
        shape = NodeShape(gpus=4, labels={"flavour": flavour}, taints=[taint])
        (nodes[flavour],) = await installation.cluster.add_nodes(1, shape, prefix=next_name())
    yield nodes
    for node in nodes.values():
        await installation.cluster.api.delete(NODES, None, node)


async def admit(cluster: Cluster, namespace: str, flavour: str, *gates: str) -> None:
    """Have Kueue admit the TrainJob to a flavour."""
    template = _pods(flavour, gates)
    entry = {"manager": _MANAGER, "trainingRuntimeSpec": {"template": template}}
    patches = [*await _others(cluster, namespace), entry]
    spec: Obj = {"suspend": False, "runtimePatches": patches}
    await cluster.api.merge(TRAINJOBS, namespace, "job", {"spec": spec})


async def restore(cluster: Cluster, namespace: str) -> None:
    """Have Kueue take away what it wrote, of a TrainJob without pods, as soon as it is let."""
    fields: Obj = {"spec": {"runtimePatches": await _others(cluster, namespace)}}
    await retry_while_stale(lambda: cluster.api.merge(TRAINJOBS, namespace, "job", fields), _STILL)


async def _others(cluster: Cluster, namespace: str) -> list[Obj]:
    job = await cluster.api.get(TRAINJOBS, namespace, "job")
    return [it for it in job["spec"]["runtimePatches"] if it["manager"] != _MANAGER]


def _pods(flavour: str, gates: tuple[str, ...]) -> Obj:
    toleration = {"key": "flavour", "value": flavour, "effect": "NoSchedule"}
    spec: Obj = {"nodeSelector": {"flavour": flavour}, "tolerations": [toleration]}
    spec["schedulingGates"] = [{"name": gate} for gate in gates]
    meta = {
        "labels": {"kueue.x-k8s.io/podset": "node"},
        "annotations": {"kueue.x-k8s.io/workload": "w"},
    }
    template = {"spec": {"template": {"metadata": meta, "spec": spec}}}
    return {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}


async def ungate(cluster: Cluster, namespace: str, pod: Obj, run_for: str = "600s") -> None:
    """Take the gate of a pod away, and say for how long it will run."""
    meta = {"annotations": {RUN_SECONDS: run_for}}
    fields: dict[str, Any] = {"metadata": meta, "spec": {"schedulingGates": None}}
    await cluster.api.merge(PODS, namespace, pod["metadata"]["name"], fields)


def placed(state: State) -> list[str]:
    """Return the nodes that pods have."""
    return [it["spec"]["nodeName"] for it in pods_in(state) if it["spec"].get("nodeName")]


def all_on(node: str) -> Callable[[State], bool]:
    """Return whether both pods are on a node."""
    return lambda state: placed(state) == [node] * 2


async def test_suspended_gated_evicted_and_admitted_elsewhere(
    installation: Installation, own_namespace: str, flavours: dict[str, str]
) -> None:
    """It goes where Kueue wants it, not before its gates are gone, and keeps its queue."""
    cluster = installation.cluster
    watched = (TRAINJOBS, JOBSETS, PODGROUPS, PODS)
    async with cluster.timeline(*watched, namespace=own_namespace) as seen:
        await cluster.api.create(await _suspended_job(cluster, own_namespace))
        await seen.until(lambda _: len(seen.objects(JOBSETS)) == 1, "it is held")
        await admit(cluster, own_namespace, "spot", _GATE)
        await seen.until(lambda state: len(pods_in(state)) == 2, "its pods exist")
        await seen.until(lambda state: len(groups_in(state)) == 1, "and their group")
        gated = await sentences_of("why", "job", "-n", own_namespace, kubeconfig=cluster.kubeconfig)
        first, second = pods_in(seen.state)
        await ungate(cluster, own_namespace, first)
        await seen.until(lambda state: len(_gated(state)) == 1, "one gate is gone")
        await seen.settle()
        seen.never(lambda state: bool(placed(state)), "a pod was bound although one was gated")
        await ungate(cluster, own_namespace, second)
        await seen.until(all_on(flavours["spot"]), "both are where Kueue wants them")

        await cluster.api.merge(TRAINJOBS, own_namespace, "job", {"spec": {"suspend": True}})
        await seen.until(lambda state: not pods_in(state), "Kueue has taken it back")
        await seen.until(_is_idle, "Trainer says so as well")
        await restore(cluster, own_namespace)
        await admit(cluster, own_namespace, "firm", _GATE)
        await seen.until(lambda state: len(_gated(state)) == 2, "its pods exist again")
        for pod in pods_in(seen.state):
            await ungate(cluster, own_namespace, pod, "1s")
        await seen.until(all_on(flavours["firm"]), "it is where it is admitted anew")
        await seen.until(is_complete, "it is Complete")
        history = seen.history()

    assert "Gated" in gated.out
    assert _GATE in gated.out
    (jobset,), (group,), (asked,) = (seen.objects(it) for it in (JOBSETS, PODGROUPS, TRAINJOBS))
    assert (jobset["metadata"]["labels"][QUEUE], group["spec"]["queue"]) == ("default-queue",) * 2
    pods = {it.key: it.obj for it in history if it.key.resource == PODS}
    assert {it["metadata"]["labels"][QUEUE] for it in pods.values()} == {"default-queue"}
    assert len({it.key for it in history if it.key.resource == PODGROUPS}) == 1
    assert [it["manager"] for it in asked["spec"]["runtimePatches"]][-1] == _MANAGER


async def _suspended_job(cluster: Cluster, namespace: str) -> Obj:
    """Return a TrainJob that does not end before Kueue takes it back."""
    runtime = "torch-distributed"
    patches = finishing_pods(await cluster.api.get(CLUSTER_RUNTIMES, None, runtime), "600s")
    job = Submission("job", runtime, namespace, 2, 2, patches, labels=_LABELS).trainjob()
    job["spec"]["suspend"] = True
    return job


def _gated(state: State) -> list[Obj]:
    return [it for it in pods_in(state) if it["spec"].get("schedulingGates")]


def _is_idle(state: State) -> bool:
    """Say whether no Job of the JobSet is active: only then may Kueue change its entry."""
    jobs = [obj for key, obj in state.items() if key.resource == JOBSETS]
    counts = [it for job in jobs for it in job.get("status", {}).get("replicatedJobsStatus", ())]
    return bool(counts) and not any(it.get("active") for it in counts)
