"""Which queue a TrainJob goes to, on the real chain: JobSet, Job and pods say the same."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import CRDS, EVENTS, JOBS, JOBSETS, NAMESPACES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import Timeline
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.dry_run import until_queue_known
from e2e.fixtures.install import MANIFESTS
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.runtimes import make_runtime

FIELD: Final = MANIFESTS / "components" / "runtime-queue-field" / "patch.yaml"
KINDS: Final = ("trainingruntimes", "clustertrainingruntimes")


class Row(NamedTuple):
    """What each place says, and what JobSet, templates, Job and pods say in the end."""

    name: str
    runtime: Mapping[str, Any]
    labels: Mapping[str, str]
    want: tuple[str, str, str, str]


POD: Final[Obj] = {"pod_labels": {QUEUE: "of-pods"}}
JOBSET: Final[Obj] = {"labels": {QUEUE: "of-jobset"}}
RUNTIME: Final[Obj] = {"policy": {"kaiScheduler": {"queue": "of-runtime"}}}
TRAINJOB: Final = {QUEUE: "of-trainjob"}
ROWS: Final = (
    Row("trainjob", {**POD, **JOBSET, **RUNTIME}, TRAINJOB, ("of-trainjob",) * 4),
    Row("runtime", {**POD, **JOBSET, **RUNTIME}, {}, ("of-runtime",) * 4),
    Row("field", RUNTIME, {}, ("of-runtime",) * 4),
    Row("jobset", {**POD, **JOBSET}, {}, ("of-jobset", *("of-pods",) * 3)),
    Row("pods", POD, {}, ("of-pods",) * 4),
    Row("namespace", {}, {}, ("of-namespace",) * 4),
)


async def test_who_names_the_queue(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """The TrainJob, the runtime's field, its template, its pods, the namespace, in this order."""
    await _add_field(webhook_installation.cluster)
    labels = {"metadata": {"labels": {QUEUE: "of-namespace"}}}
    await webhook_installation.cluster.api.merge(NAMESPACES, None, own_namespace, labels)
    for row in ROWS:
        await make_runtime(webhook_installation.cluster, own_namespace, row.name, **row.runtime)
    for runtime in ("runtime", "field"):  # each may be known from a watch older than the field
        job = Submission(f"probe-{runtime}", runtime, own_namespace, 1, kind="TrainingRuntime")
        await until_queue_known(webhook_installation.cluster, job, "of-runtime")
    async with webhook_installation.cluster.timeline(
        JOBSETS, JOBS, PODS, namespace=own_namespace
    ) as seen:
        for row in ROWS:
            job = Submission(
                row.name, row.name, own_namespace, 1, kind="TrainingRuntime", labels=row.labels
            )
            await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda _: len(seen.objects(PODS)) == len(ROWS), "all pods exist")

    assert {row.name: _queues_of(seen, row.name) for row in ROWS} == {
        row.name: row.want for row in ROWS
    }


async def test_where_nobody_names_one_there_is_a_default(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """It is written down like any other."""
    async with webhook_installation.cluster.timeline(
        JOBSETS, JOBS, PODS, namespace=own_namespace
    ) as seen:
        await webhook_installation.cluster.api.create(
            Submission("job", "torch-distributed", own_namespace, 1).trainjob()
        )
        await seen.until(lambda _: len(seen.objects(PODS)) == 1, "the pod exists")

    assert _queues_of(seen, "job") == ("default-queue",) * 4


async def test_a_label_that_changes_while_suspended_counts_at_resume(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """It is changed, then taken away; each time the new pods say so, and Trainer is never stuck."""
    await make_runtime(webhook_installation.cluster, own_namespace, **JOBSET)
    job = Submission(
        "job", "own", own_namespace, 1, kind="TrainingRuntime", labels={QUEUE: "team-a"}
    )
    output = []
    async with webhook_installation.cluster.timeline(
        JOBSETS, JOBS, PODS, EVENTS, namespace=own_namespace
    ) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        for later in ("team-b", None, ""):
            await seen.until(lambda _: len(seen.objects(PODS)) == 1, "the pod exists")
            await seen.settle()  # what it was made of may be seen later than it
            output.append(_queues_of(seen, "job"))
            await _merge(webhook_installation.cluster, own_namespace, {"spec": {"suspend": True}})
            await seen.until(lambda _: not seen.objects(PODS), "the pod is gone")
            await _merge(
                webhook_installation.cluster,
                own_namespace,
                {"metadata": {"labels": {QUEUE: later}}},
            )
            await _merge(webhook_installation.cluster, own_namespace, {"spec": {"suspend": False}})
        await seen.until(lambda _: len(seen.objects(PODS)) == 1, "the pod exists")
    output.append(_queues_of(seen, "job"))

    assert output == [(queue,) * 4 for queue in ("team-a", "team-b", "of-jobset", "of-jobset")]
    assert [it for it in seen.objects(EVENTS) if it.get("type") == "Warning"] == []


def _queues_of(seen: Timeline, name: str) -> tuple[str, ...]:
    """Return the queue of the JobSet, of its template, of the Job's template, of the pod."""
    (jobset,) = (it for it in seen.objects(JOBSETS) if it["metadata"]["name"] == name)
    (job,) = (it for it in seen.objects(JOBS) if it["metadata"]["name"] == f"{name}-node-0")
    (pod,) = (
        it for it in seen.objects(PODS) if it["metadata"]["name"].startswith(f"{name}-node-0-0-")
    )
    (replicated,) = jobset["spec"]["replicatedJobs"]
    templates: tuple[Obj, ...] = (
        replicated["template"]["spec"]["template"],
        job["spec"]["template"],
    )
    return tuple(it["metadata"]["labels"][QUEUE] for it in (jobset, *templates, pod))


async def _merge(cluster: Cluster, namespace: str, fields: Obj) -> None:
    await cluster.api.merge(TRAINJOBS, namespace, "job", fields)


async def _add_field(cluster: Cluster) -> None:
    """Let runtimes name a queue by a field, and wait until the API server keeps it."""
    patch = yaml.safe_load(FIELD.read_text())
    for kind in KINDS:
        path = CRDS.path(None, f"{kind}.trainer.kubeflow.org")
        await cluster.api.request("PATCH", path, patch, content_type="application/json-patch+json")
    async with patience(20):
        while True:
            try:
                return await make_runtime(cluster, "default", "of-a-test", **RUNTIME)
            except ApiError as error:
                if "unknown field" not in str(error):
                    raise
                await asyncio.sleep(0.1)
