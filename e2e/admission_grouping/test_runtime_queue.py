"""The queue as a field of a runtime, on definitions that carry it."""

import asyncio

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, PODS, RUNTIMES, Obj, Resource
from e2e.cluster.timeline import Timeline
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.dry_run import until_queue_known
from e2e.fixtures.install import MANIFESTS, PODGROUPS, kubectl
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import QUEUE

_PATCH = MANIFESTS / "components" / "runtime-queue-field" / "patch.yaml"


async def test_the_field_of_a_runtime_names_the_queue(
    own_webhook_installation: WebhookInstallation,
) -> None:
    """It goes all the way down, for both kinds of runtime; a TrainJob's own label outranks it."""
    cluster = own_webhook_installation.cluster
    for resource in (RUNTIMES, CLUSTER_RUNTIMES):
        await _patch_definition(cluster, resource)
    await _create(cluster, await _runtime(cluster, CLUSTER_RUNTIMES, "team-f"))
    await _create(cluster, await _runtime(cluster, RUNTIMES, "team-g"))
    jobs = [
        Submission("by-field", "with-queue", num_nodes=1),
        Submission("by-local", "with-queue", num_nodes=1, kind="TrainingRuntime"),
        Submission("by-label", "with-queue", num_nodes=1, labels={QUEUE: "team-a"}),
    ]
    for job in jobs:
        await cluster.api.create(job.trainjob(), dryRun="All")  # Trainer has heard of its runtime
    # Our watches from before the patch do not see the field: those kinds are read anew.
    local = Submission("of-local", "with-queue", kind="TrainingRuntime")
    await until_queue_known(cluster, Submission("of-cluster", "with-queue"), "team-f")
    await until_queue_known(cluster, local, "team-g")
    async with cluster.timeline(JOBSETS, PODGROUPS, PODS) as seen:
        for job in jobs:
            await cluster.api.create(job.trainjob())
        await seen.until(lambda _: len(seen.objects(PODS)) == len(jobs), "all pods exist")
        await seen.until(lambda _: len(seen.objects(PODGROUPS)) == len(jobs), "all groups exist")

    wanted = {"by-field": "team-f", "by-local": "team-g", "by-label": "team-a"}
    assert _labels(seen, JOBSETS) == wanted
    assert _labels(seen, PODS) == wanted
    assert _labels(seen, PODGROUPS) == wanted
    assert {group["spec"]["queue"] for group in seen.objects(PODGROUPS)} == set(wanted.values())


async def _patch_definition(cluster: Cluster, resource: Resource) -> None:
    name = f"{resource.plural}.{resource.group}"
    where = ("--kubeconfig", str(cluster.kubeconfig))
    await kubectl(*where, "patch", "crd", name, "--type=json", "--patch-file", str(_PATCH))


async def _create(cluster: Cluster, runtime: Obj) -> None:
    """Create a runtime, as soon as its definition is known everywhere."""
    async with patience(20):
        while True:
            try:
                await cluster.api.create(runtime, fieldValidation="Strict")
            except ApiError as error:
                assert "unknown field" in str(error)  # noqa: PT017 - anything else is raised
                await asyncio.sleep(0.1)
            else:
                return


async def _runtime(cluster: Cluster, resource: Resource, queue: str) -> Obj:
    """Return the shipped torch runtime as one that names a queue."""
    shipped = await cluster.api.get(CLUSTER_RUNTIMES, None, "torch-distributed")
    namespace = {"namespace": "default"} if resource is RUNTIMES else {}
    policy = {"podGroupPolicy": {"kaiScheduler": {"queue": queue}}}
    return {
        "apiVersion": shipped["apiVersion"],
        "kind": resource.kind,
        "metadata": {"name": "with-queue", **namespace},
        "spec": {**shipped["spec"], **policy},
    }


def _labels(seen: Timeline, resource: Resource) -> dict[str, str]:
    """Return the queue labels of all objects of a kind, by TrainJob."""
    found = {}
    for obj in seen.objects(resource):
        labels = obj["metadata"]["labels"]
        job = labels.get("jobset.sigs.k8s.io/jobset-name", obj["metadata"]["name"])
        found[job] = labels[QUEUE]
    return found
