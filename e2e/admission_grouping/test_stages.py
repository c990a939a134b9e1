"""Stages by their groups alone: one binder carries them, and cannot carry one group of everything.

Whoever binds here knows groups and pods and nothing of runtimes: it binds what a group says may be
bound. With one group of everything, which is what KAI makes, the same binder binds nothing, ever.
"""

from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Timeline
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace, next_name
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import WebhookInstallation, run_webhook_installation
from e2e.fixtures.podgroups import (
    PODGROUP,
    QUEUE,
    SUBGROUP,
    bind_by_podgroups,
    finishing_pods,
    is_complete,
    podgroup_summary,
)
from tests.support.workloads.podgroup_binder import bindable


async def test_volume_claims_do_not_keep_a_trainjob_from_being_suspended(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Without our webhook JobSet refuses what Trainer applies."""
    runtime = "torchtune-llama3.2-1b"
    installed = await webhook_installation.cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    job = Submission(
        "job", runtime, own_namespace, 1, 1, finishing_pods(installed), labels={QUEUE: "q"}
    )
    kinds = (TRAINJOBS, JOBSETS, PODGROUPS, PODS)
    async with webhook_installation.cluster.timeline(*kinds, namespace=own_namespace) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda _: bool(seen.objects(PODS)), "a pod exists")
        await webhook_installation.cluster.api.merge(
            TRAINJOBS, own_namespace, "job", {"spec": {"suspend": True}}
        )
        await seen.until(lambda _: not seen.objects(PODS), "no pod is left")
        await webhook_installation.cluster.api.merge(
            TRAINJOBS, own_namespace, "job", {"spec": {"suspend": False}}
        )
        await bind_by_podgroups(webhook_installation.cluster, seen, is_complete)


@pytest.mark.parametrize("runtime", ["deepspeed-distributed", "torchtune-llama3.2-1b"])
async def test_one_group_of_everything_deadlocks(
    runtime: str, webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """The same pods, in the group that KAI would make of the whole JobSet: none may be bound."""
    job = Submission("job", runtime, own_namespace, 4)
    async with webhook_installation.cluster.timeline(
        JOBSETS, PODGROUPS, PODS, namespace=own_namespace
    ) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        first = 3 if runtime.startswith("deepspeed") else 2
        await seen.until(
            lambda _: len(seen.objects(PODS)) == first, "all pods of the first stage exist"
        )
        await seen.until(
            lambda _: bindable(seen.objects(PODGROUPS), seen.objects(PODS)) != [],
            "ours may be bound",
        )
    (jobset,) = seen.objects(JOBSETS)
    whole = _one_group(jobset)
    pods = [_in_group(pod, whole["metadata"]["name"]) for pod in seen.objects(PODS)]

    assert bindable([whole], pods) == []


async def test_flat_groups_carry_a_runtime_too(
    tmp_path: Path, stage_table: list[tuple[str, ...]]
) -> None:
    """For an external scheduler each stage is a group of its own, without sub-groups."""
    async with run_webhook_installation("test-external", tmp_path, "external") as external:
        for runtime in ("deepspeed-distributed", "torchtune-llama3.2-1b"):
            stage_table += [await _bound_in_one_group(external.cluster, runtime)]


async def _bound_in_one_group(cluster: Cluster, runtime: str) -> tuple[str, ...]:
    """Carry one TrainJob to Complete by flat groups; return the row of the table."""
    namespace = next_name()
    await make_namespace(cluster, namespace)
    installed = await cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    job = Submission("job", runtime, namespace, 4, 1, finishing_pods(installed))
    async with cluster.timeline(TRAINJOBS, JOBSETS, PODGROUPS, PODS, namespace=namespace) as seen:
        await cluster.api.create(job.trainjob())
        bound = await bind_by_podgroups(cluster, seen, is_complete)
    groups = sorted(seen.objects(PODGROUPS), key=_stage)
    (jobset,) = seen.objects(JOBSETS)

    assert jobset["metadata"]["annotations"]["kai.scheduler/skip-podgrouper"] == "true"
    assert not any("subGroups" in group["spec"] for group in groups)
    assert not any(SUBGROUP in pod["metadata"]["labels"] for pod in _all_pods(seen))
    podgroups = _in_stages(groups)
    took = f"{seen.moments[-1].at_s:.1f} s"
    return (f"{runtime} (external)", "4", f"{len(groups)}", podgroups, f"{len(bound)}", took)


def _in_stages(groups: list[Obj]) -> str:
    """Write down the PodGroups, those of one stage beside each other."""
    stages: dict[str, list[str]] = {}
    for group in sorted(groups, key=_stage):
        stages.setdefault(_stage(group).partition(" ")[0], []).append(podgroup_summary(group))
    return " → ".join(", ".join(podgroups) for podgroups in stages.values())


def _stage(group: Obj) -> str:
    stage: str = group["metadata"]["annotations"]["trainer-kai.dev/stage"]
    return stage


def _one_group(jobset: Obj) -> Obj:
    """Return the group that KAI v0.17 makes of a JobSet."""
    nodes: list[Obj] = []
    for job in jobset["spec"]["replicatedJobs"]:
        size = job["template"]["spec"]["parallelism"]
        nodes.append({"name": job["name"], "minSubGroup": job["replicas"]})
        podset = {"name": f"{job['name']}-replica-0", "parent": job["name"], "minMember": size}
        nodes.append(podset)
    meta = jobset["metadata"]
    return {
        "metadata": {"namespace": meta["namespace"], "name": "one"},
        "spec": {"minSubGroup": len(jobset["spec"]["replicatedJobs"]), "subGroups": nodes},
    }


def _in_group(pod: Obj, name: str) -> Obj:
    meta = pod["metadata"]
    labels = meta["labels"]
    podset = f"{labels['jobset.sigs.k8s.io/replicatedjob-name']}-replica-0"
    marked = {**meta, "annotations": {PODGROUP: name}, "labels": {**labels, SUBGROUP: podset}}
    return {**pod, "metadata": marked}


def _all_pods(seen: Timeline) -> list[Obj]:
    return [moment.obj for moment in seen.moments if moment.key.resource == PODS]
