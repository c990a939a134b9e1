"""Every runtime Trainer ships, from TrainJob to Complete on the bare chain."""

import pytest

from e2e.chain.carry import bind_until
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import (
    CLUSTER_RUNTIMES,
    JOBS,
    JOBSETS,
    NODES,
    PODS,
    PVCS,
    PVS,
    TRAINJOBS,
    Obj,
)
from e2e.cluster.stages import RUN_SECONDS, SELECTED_NODE, WAITING_CLASS
from e2e.cluster.timeline import State, Timeline, replay
from e2e.cluster.trainjobs import Submission, condition, pod_annotations, replicated_jobs

# runtime -> its stages: what exists together, in the order it comes into being
STAGES = {
    "torch-distributed": [["node"]],
    "jax-distributed": [["node"]],
    "xgboost-distributed": [["node"]],
    "deepspeed-distributed": [["node"], ["launcher"]],
    "mlx-distributed": [["node"], ["launcher"]],
    "torch-distributed-with-cache": [["dataset-initializer"], ["node"]],
    "torchtune-llama3.2-1b": [["dataset-initializer", "model-initializer"], ["node"]],
    "torchtune-llama3.2-3b": [["dataset-initializer", "model-initializer"], ["node"]],
    "torchtune-qwen2.5-1.5b": [["dataset-initializer", "model-initializer"], ["node"]],
}
RUNS_FOR = "1s"


async def test_every_shipped_runtime_is_covered(cluster: Cluster) -> None:
    """A runtime that a new Trainer ships must be added here."""
    installed, _ = await cluster.api.list(CLUSTER_RUNTIMES)

    assert sorted(r["metadata"]["name"] for r in installed) == sorted(STAGES)


@pytest.mark.parametrize("runtime", STAGES)
async def test_runtime_reaches_complete(
    runtime: str, cluster: Cluster, namespace: str, runtime_table: list[tuple[str, ...]]
) -> None:
    """Bound in the order they are created, the pods of a shipped runtime carry it to Complete."""
    installed = await cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    submission = Submission(
        "job", runtime, namespace, num_nodes=3, gpus=1, patches=_finishing(installed)
    )

    async with cluster.timeline(TRAINJOBS, JOBSETS, JOBS, PODS, PVCS, namespace=namespace) as seen:
        await cluster.api.create(submission.trainjob())
        bound = await bind_until(cluster, seen, await _node_names(cluster), _is_complete)

    order = [_replicated_job(seen, pod) for pod in bound]
    runtime_table.append(_row(runtime, seen, order))
    stages = [sorted({order[at] for at in stage}) for stage in _stages_in(runtime, order)]
    assert stages == [sorted(stage) for stage in STAGES[runtime]]
    assert order.count("node") + order.count("launcher") == 3
    assert _gpus_of(seen) == 3 * 1
    assert _too_early(seen, STAGES[runtime]) == []


async def test_torchtune_waits_for_its_first_consumer(cluster: Cluster, namespace: str) -> None:
    """A claim of the waiting class is bound only after a pod's node is chosen, and to that node."""
    runtime = await _with_waiting_class(cluster, "torchtune-llama3.2-1b", namespace)
    submission = Submission(
        "job", "local", namespace, kind="TrainingRuntime", patches=_finishing(runtime)
    )

    async with cluster.timeline(TRAINJOBS, PODS, PVCS, namespace=namespace) as seen:
        await cluster.api.create(submission.trainjob())
        await seen.until(lambda _: len(seen.of(PODS)) == 2, "both initializers exist")
        await bind_until(cluster, seen, ["node-3"], _is_complete)

    claim = seen.of(PVCS)[0]
    volume = await cluster.api.get(PVS, None, claim["spec"]["volumeName"])
    affinity = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]
    assert affinity["matchExpressions"][0]["values"] == ["node-3"]
    seen.never(_bound_without_a_node, "a waiting claim was bound before its node was chosen")


def _finishing(runtime: Obj) -> Obj:
    """Return the patch that lets pods finish; not MPI workers, whom their launcher ends."""
    names = replicated_jobs(runtime)
    finishing = [name for name in names if "launcher" not in names or name == "launcher"]
    return pod_annotations({name: {RUN_SECONDS: RUNS_FOR} for name in finishing})


def _too_early(seen: Timeline, stages: list[list[str]]) -> list[str]:
    """Return the pods that were created before the stage ahead of theirs was ready or done."""
    stage_of = {name: number for number, stage in enumerate(stages) for name in stage}
    early = []
    for moment, state in replay(seen.history()):
        if moment.type != "ADDED" or moment.key.resource != PODS:
            continue
        pods = [obj for key, obj in state.items() if key.resource == PODS]
        ahead = stage_of[_part_of(moment.obj)] - 1
        before = [pod for pod in pods if stage_of[_part_of(pod)] == ahead]
        if ahead >= 0 and not (before and all(_is_ready_or_done(pod) for pod in before)):
            early.append(moment.key.name)
    return early


def _is_ready_or_done(pod: Obj) -> bool:
    return condition(pod, "Ready") or pod["status"]["phase"] == "Succeeded"


def _is_complete(state: State) -> bool:
    return any(k.resource == TRAINJOBS and condition(o, "Complete") for k, o in state.items())


def _stages_in(runtime: str, order: list[str]) -> list[range]:
    """Cut the order of binding into the runs that belong to each stage."""
    cuts, start = [], 0
    for stage in STAGES[runtime]:
        end = start
        while end < len(order) and order[end] in stage:
            end += 1
        cuts.append(range(start, end))
        start = end
    assert start == len(order), f"{order} does not follow the stages {STAGES[runtime]}"
    return cuts


def _replicated_job(seen: Timeline, pod: str) -> str:
    return _part_of(next(m.obj for m in seen.moments if m.key.name == pod))


def _part_of(pod: Obj) -> str:
    name: str = pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]
    return name


def _gpus_of(seen: Timeline) -> int:
    """Add up what the pods of the trainer asked for."""
    pods = {m.key.name: m.obj for m in seen.moments if m.key.resource == PODS}
    containers = [
        c for pod in pods.values() for c in pod["spec"]["containers"] if c["name"] == "node"
    ]
    return sum(int(c["resources"].get("limits", {}).get(GPU, 0)) for c in containers)


def _row(runtime: str, seen: Timeline, order: list[str]) -> tuple[str, ...]:
    jobs = sorted({m.key.name for m in seen.moments if m.key.resource == JOBS})
    runs = [f"{order.count(name)} {name}" for name in dict.fromkeys(order)]
    short = ", ".join(job.removeprefix("job-") for job in jobs)
    return runtime, "3", short, " → ".join(runs), f"{seen.moments[-1].at_s:.1f} s"


async def _node_names(cluster: Cluster) -> list[str]:
    nodes, _ = await cluster.api.list(NODES)
    return [node["metadata"]["name"] for node in nodes]


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
