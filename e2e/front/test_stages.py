"""Every runtime that Trainer ships, through all its stages, by its groups alone.

Whoever binds here knows groups and pods and nothing of runtimes: it binds what a group says may be
bound. With one group of everything, which is what KAI makes, the same binder binds nothing, ever.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Timeline
from e2e.cluster.trainjobs import Submission
from e2e.front.conftest import front_on
from e2e.front.install import PODGROUPS
from e2e.front.ours import (
    GROUP,
    LEAF,
    QUEUE,
    Front,
    carry,
    finishing,
    is_complete,
    shape,
)
from tests.support.groupbinder import bindable

_SHIPPED: Mapping[str, Mapping[int, list[str]]] = {
    "torch-distributed": {1: ["1 node"], 4: ["4 node"]},
    "jax-distributed": {1: ["1 node"], 4: ["4 node"]},
    "xgboost-distributed": {1: ["1 node"], 4: ["4 node"]},
    "deepspeed-distributed": {1: ["1 node + 1 launcher"], 4: ["3 node + 1 launcher"]},
    "mlx-distributed": {1: ["1 node + 1 launcher"], 4: ["3 node + 1 launcher"]},
    "torch-distributed-with-cache": {
        1: ["1 dataset-initializer", "1 node"],
        4: ["1 dataset-initializer", "4 node"],
    },
    "torchtune-llama3.2-1b": {
        1: ["1 dataset-initializer", "1 model-initializer", "1 node"],
        4: ["1 dataset-initializer", "1 model-initializer", "4 node"],
    },
    "torchtune-llama3.2-3b": {
        4: ["1 dataset-initializer", "1 model-initializer", "4 node"],
    },
    "torchtune-qwen2.5-1.5b": {
        4: ["1 dataset-initializer", "1 model-initializer", "4 node"],
    },
}
_CASES = [(runtime, nodes) for runtime, of in _SHIPPED.items() for nodes in of]


async def test_every_shipped_runtime_is_covered(front: Front) -> None:
    """A runtime that a new Trainer ships must be added here."""
    installed, _ = await front.cluster.api.list(CLUSTER_RUNTIMES)

    assert sorted(r["metadata"]["name"] for r in installed) == sorted(_SHIPPED)


@pytest.mark.parametrize(("runtime", "nodes"), _CASES)
async def test_a_shipped_runtime_reaches_complete(
    runtime: str, nodes: int, front: Front, room: str, stage_table: list[tuple[str, ...]]
) -> None:
    """Its groups are the expected ones, carry it to Complete, and cost no more writes than that."""
    installed = await front.cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    labels = {QUEUE: "default-queue"}
    job = Submission("job", runtime, room, nodes, 1, finishing(installed), labels=labels)
    mark = await front.cluster.audit.mark()

    kinds = (TRAINJOBS, JOBSETS, PODGROUPS, PODS)
    async with front.cluster.timeline(*kinds, namespace=room) as seen:
        await front.cluster.api.create(job.trainjob())
        bound = await carry(front.cluster, seen, is_complete)

    groups = seen.of(PODGROUPS)
    assert sorted(map(shape, groups)) == sorted(_SHIPPED[runtime][nodes])
    assert all(group["spec"]["queue"] == "default-queue" for group in groups)
    _check_members(seen)
    writes = await _our_writes(front.cluster, mark, room)
    assert writes <= len(groups) + 1
    units = _in_stages(groups)
    took = f"{seen.moments[-1].at_s:.1f} s"
    stage_table.append(
        (runtime, f"{nodes}", f"{len(groups)}", units, f"{len(bound)}", f"{writes}", took)
    )


async def test_volume_claims_do_not_keep_a_trainjob_from_being_suspended(
    front: Front, room: str
) -> None:
    """Without our webhook JobSet refuses what Trainer applies."""
    runtime = "torchtune-llama3.2-1b"
    installed = await front.cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    job = Submission("job", runtime, room, 1, 1, finishing(installed), labels={QUEUE: "q"})
    kinds = (TRAINJOBS, JOBSETS, PODGROUPS, PODS)
    async with front.cluster.timeline(*kinds, namespace=room) as seen:
        await front.cluster.api.create(job.trainjob())
        await seen.until(lambda _: bool(seen.of(PODS)), "a pod exists")
        await front.cluster.api.merge(TRAINJOBS, room, "job", {"spec": {"suspend": True}})
        await seen.until(lambda _: not seen.of(PODS), "no pod is left")
        await front.cluster.api.merge(TRAINJOBS, room, "job", {"spec": {"suspend": False}})
        await carry(front.cluster, seen, is_complete)


@pytest.mark.parametrize("runtime", ["deepspeed-distributed", "torchtune-llama3.2-1b"])
async def test_one_group_of_everything_deadlocks(runtime: str, front: Front, room: str) -> None:
    """The same pods, in the group that KAI would make of the whole JobSet: none may be bound."""
    job = Submission("job", runtime, room, 4)
    async with front.cluster.timeline(JOBSETS, PODGROUPS, PODS, namespace=room) as seen:
        await front.cluster.api.create(job.trainjob())
        first = 3 if runtime.startswith("deepspeed") else 2
        await seen.until(lambda _: len(seen.of(PODS)) == first, "all pods of the first stage exist")
        await seen.until(
            lambda _: bindable(seen.of(PODGROUPS), seen.of(PODS)) != [], "ours may be bound"
        )
    (jobset,) = seen.of(JOBSETS)
    whole = _one_group(jobset)
    pods = [_in_group(pod, whole["metadata"]["name"]) for pod in seen.of(PODS)]

    assert bindable([whole], pods) == []


@pytest.mark.parametrize("runtime", ["deepspeed-distributed", "torchtune-llama3.2-1b"])
async def test_flat_groups_carry_a_runtime_too(
    runtime: str, tmp_path: Path, stage_table: list[tuple[str, ...]]
) -> None:
    """For an external scheduler each stage is a group of its own, without sub-groups."""
    async with front_on("test-external", tmp_path, "external") as external:
        cluster = external.cluster
        installed = await cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
        job = Submission("job", runtime, "default", 4, 1, finishing(installed))
        async with cluster.timeline(TRAINJOBS, JOBSETS, PODGROUPS, PODS) as seen:
            await cluster.api.create(job.trainjob())
            bound = await carry(cluster, seen, is_complete)
        groups = sorted(seen.of(PODGROUPS), key=_stage)
        (jobset,) = seen.of(JOBSETS)

    assert jobset["metadata"]["annotations"]["kai.scheduler/skip-podgrouper"] == "true"
    assert not any("subGroups" in group["spec"] for group in groups)
    assert not any(LEAF in pod["metadata"]["labels"] for pod in _all_pods(seen))
    units = _in_stages(groups)
    took = f"{seen.moments[-1].at_s:.1f} s"
    row = (f"{runtime} (external)", "4", f"{len(groups)}", units, f"{len(bound)}", "", took)
    stage_table.append(row)


def _check_members(seen: Timeline) -> None:
    """Every pod named its group and its place in it from the first moment on."""
    leaves = {
        (group["metadata"]["name"], one["name"])
        for group in seen.of(PODGROUPS)
        for one in group["spec"]["subGroups"]
        if "minMember" in one
    }
    for moment in seen.moments:
        if moment.key.resource == PODS:
            meta = moment.obj["metadata"]
            assert (meta["annotations"][GROUP], meta["labels"][LEAF]) in leaves


async def _our_writes(cluster: Cluster, mark: int, namespace: str) -> int:
    writes = await cluster.audit.writes(mark)
    ours = [
        write
        for write in writes
        if "trainer-kai" in write.user and write.namespace == namespace and write.status < 300
    ]
    return len(ours)


def _in_stages(groups: list[Obj]) -> str:
    """Write down the units, those of one stage beside each other."""
    stages: dict[str, list[str]] = {}
    for group in sorted(groups, key=_stage):
        stages.setdefault(_stage(group).partition(" ")[0], []).append(shape(group))
    return " → ".join(", ".join(units) for units in stages.values())


def _stage(group: Obj) -> str:
    stage: str = group["metadata"]["annotations"]["trainer-kai.dev/stage"]
    return stage


def _one_group(jobset: Obj) -> Obj:
    """Return the group that KAI v0.17 makes of a JobSet."""
    nodes: list[Obj] = []
    for job in jobset["spec"]["replicatedJobs"]:
        size = job["template"]["spec"]["parallelism"]
        nodes.append({"name": job["name"], "minSubGroup": job["replicas"]})
        leaf = {"name": f"{job['name']}-replica-0", "parent": job["name"], "minMember": size}
        nodes.append(leaf)
    meta = jobset["metadata"]
    return {
        "metadata": {"namespace": meta["namespace"], "name": "one"},
        "spec": {"minSubGroup": len(jobset["spec"]["replicatedJobs"]), "subGroups": nodes},
    }


def _in_group(pod: Obj, name: str) -> Obj:
    meta = pod["metadata"]
    labels = meta["labels"]
    leaf = f"{labels['jobset.sigs.k8s.io/replicatedjob-name']}-replica-0"
    marked = {**meta, "annotations": {GROUP: name}, "labels": {**labels, LEAF: leaf}}
    return {**pod, "metadata": marked}


def _all_pods(seen: Timeline) -> list[Obj]:
    return [moment.obj for moment in seen.moments if moment.key.resource == PODS]
