"""Volumes of a shipped runtime whose claims wait for their first consumer, on the bare chain."""

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS, SELECTED_NODE, WAITING_CLASS
from e2e.cluster.resources import (
    CLUSTER_RUNTIMES,
    PODS,
    PVCS,
    PVS,
    TRAINJOBS,
    Obj,
)
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission, condition, pod_annotations, replicated_jobs
from e2e.upstream.bind_pods import bind_pods_until

_RUNS_FOR = "1s"


async def test_torchtune_waits_for_its_first_consumer(cluster: Cluster, namespace: str) -> None:
    """A claim of the waiting class is bound only after a pod's node is chosen, and to that node."""
    runtime = await _with_waiting_class(cluster, "torchtune-llama3.2-1b", namespace)
    submission = Submission(
        "job", "local", namespace, kind="TrainingRuntime", patches=_finishing(runtime)
    )

    async with cluster.timeline(TRAINJOBS, PODS, PVCS, namespace=namespace) as seen:
        await cluster.api.create(submission.trainjob())
        await seen.until(lambda _: len(seen.objects(PODS)) == 2, "both initializers exist")
        await bind_pods_until(cluster, seen, ["node-3"], _is_complete)

    claim = seen.objects(PVCS)[0]
    volume = await cluster.api.get(PVS, None, claim["spec"]["volumeName"])
    affinity = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
    assert affinity["matchExpressions"][0]["values"] == ["node-3"]
    seen.never(_bound_without_a_node, "a waiting claim was bound before its node was chosen")


def _finishing(runtime: Obj) -> Obj:
    """Return the patch that lets pods finish; not MPI workers, whom their launcher ends."""
    names = replicated_jobs(runtime)
    finishing = [name for name in names if "launcher" not in names or name == "launcher"]
    return pod_annotations({name: {RUN_SECONDS: _RUNS_FOR} for name in finishing})


def _is_complete(state: State) -> bool:
    return any(k.resource == TRAINJOBS and condition(o, "Complete") for k, o in state.items())


async def _with_waiting_class(cluster: Cluster, runtime: str, namespace: str) -> Obj:
    """Make a runtime of the namespace's own whose claims wait for their first consumer."""
    shipped = await cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    copied: Obj = {
        "apiVersion": shipped["apiVersion"],
        "kind": "TrainingRuntime",
        "metadata": {"namespace": namespace, "name": "local"},
        "spec": shipped["spec"],
    }
    policy = copied["spec"]["template"]["spec"]["volumeClaimPolicies"][0]
    policy["templates"][0]["spec"]["storageClassName"] = WAITING_CLASS
    return await cluster.api.create(copied)


def _bound_without_a_node(state: State) -> bool:
    return any(
        obj.get("status", {}).get("phase") == "Bound"
        and SELECTED_NODE not in obj["metadata"].get("annotations", {})
        for key, obj in state.items()
        if key.resource == PVCS
    )
