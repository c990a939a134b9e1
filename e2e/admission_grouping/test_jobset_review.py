"""Admission of JobSets and pods on the real cluster, and what it leaves alone."""

import asyncio
import copy
from typing import Any

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    EVENTS,
    JOBS,
    JOBSETS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    SECRETS,
    TRAINJOBS,
    Obj,
)
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace, next_name
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import PODGROUP, QUEUE, SUBGROUP
from e2e.fixtures.processes import NAMESPACE
from e2e.fixtures.runtimes import make_runtime, pods_of, without_random

ADMITTED = "trainer-kai.dev/admitted"
GANG = "trainer-kai.dev/gang"
KAI = "kai-scheduler"
FOLLOWS = "trainer-kai.dev/follows-trainjob"
FAILED = "TrainJobResourcesCreationFailed"


async def test_what_a_user_writes_is_all_that_is_needed(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """A shipped runtime and one label: JobSet, Jobs and pods say all that KAI reads."""
    job = Submission("job", "torch-distributed", own_namespace, 2, labels={QUEUE: "team-b"})
    async with webhook_installation.cluster.timeline(
        JOBSETS, JOBS, PODS, namespace=own_namespace
    ) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda _: len(seen.objects(PODS)) == 2, "both pods exist")

    (jobset,), (made,) = seen.objects(JOBSETS), seen.objects(JOBS)
    group = f"pg-job-{jobset['metadata']['uid']}"
    assert jobset["metadata"]["labels"] == {QUEUE: "team-b"}
    annotations = jobset["metadata"]["annotations"]
    assert (annotations[ADMITTED], {*annotations}) == ("v1", {ADMITTED, FOLLOWS})
    assert "priorityClassName" in annotations[FOLLOWS]
    for template in (_template(jobset, "node"), made["spec"]["template"]):
        assert template["metadata"]["labels"].items() >= {QUEUE: "team-b", GANG: "Main"}.items()
        assert template["spec"]["schedulerName"] == KAI
    for pod in seen.objects(PODS):
        assert pod["metadata"]["annotations"][PODGROUP] == group
        assert pod["metadata"]["labels"][SUBGROUP] == "node-replica-0"
        assert pod["metadata"]["labels"][QUEUE] == "team-b"
        assert pod["spec"]["schedulerName"] == KAI


async def test_our_certificate_is_the_one_that_is_trusted(
    webhook_installation: WebhookInstallation,
) -> None:
    """It lies in a Secret that the process made, and each webhook names its authority."""
    secret = await webhook_installation.cluster.api.get(
        SECRETS, NAMESPACE, "trainer-kai-webhook-tls"
    )
    found = await webhook_installation.cluster.api.get(MUTATING_WEBHOOKS, None, "kai-trainer")

    assert secret["type"] == "kubernetes.io/tls"
    assert {it["clientConfig"]["caBundle"] for it in found["webhooks"]} == {
        secret["data"]["ca.crt"]
    }


async def test_an_explicit_scheduler_survives_suspend_and_resume(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """It is never written over; the rest of the JobSet is ours, and Trainer never gets stuck."""
    jobs = {"node": "", "launcher": "default-scheduler"}
    await make_runtime(
        webhook_installation.cluster, own_namespace, base="deepspeed-distributed", schedulers=jobs
    )
    job = Submission("job", "own", own_namespace, 3, kind="TrainingRuntime")
    async with webhook_installation.cluster.timeline(
        JOBSETS, PODS, namespace=own_namespace
    ) as seen:
        await webhook_installation.cluster.api.create(job.trainjob())
        await seen.until(lambda _: len(seen.objects(PODS)) == 2, "the workers exist")
        await webhook_installation.cluster.api.merge(
            TRAINJOBS, own_namespace, "job", {"spec": {"suspend": True}}
        )
        await seen.until(lambda _: not seen.objects(PODS), "they are gone")
        await webhook_installation.cluster.api.merge(
            TRAINJOBS, own_namespace, "job", {"spec": {"suspend": False}}
        )
        await seen.until(lambda _: len(seen.objects(PODS)) == 2, "they are back")

    (jobset,) = seen.objects(JOBSETS)
    assert _template(jobset, "launcher")["spec"]["schedulerName"] == "default-scheduler"
    assert GANG not in _template(jobset, "launcher")["metadata"].get("labels", {})
    assert _template(jobset, "node")["spec"]["schedulerName"] == KAI
    assert {pod["metadata"]["annotations"][PODGROUP] for pod in seen.objects(PODS)} == {
        f"pg-job-{jobset['metadata']['uid']}"
    }
    assert await _failures(webhook_installation.cluster, own_namespace) == []


async def test_what_is_not_ours_is_as_without_us(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """A JobSet by hand, a Job, pods: byte for byte what they are where we are not."""
    without = next_name()
    await make_namespace(webhook_installation.cluster, without)
    labels = {"metadata": {"labels": {"trainer-kai.dev/inject": "disabled"}}}
    await webhook_installation.cluster.api.merge(NAMESPACES, None, without, labels)

    ours, theirs = [
        await asyncio.gather(
            *(_made(webhook_installation.cluster, obj, where) for obj in _foreign())
        )
        for where in (own_namespace, without)
    ]
    pods = [
        await pods_of(webhook_installation.cluster, where, "hand")
        for where in (own_namespace, without)
    ]

    assert ours == theirs
    assert pods[0] == pods[1]
    assert len(pods[0]) == 2
    await webhook_installation.cluster.api.delete(NAMESPACES, None, without)


async def test_while_we_are_away_trainjobs_wait(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """They are taken and say why nothing is made; all others go on. Then they converge."""
    job = Submission("job", "torch-distributed", own_namespace, 1)
    await webhook_installation.webhook.kill()
    try:
        async with webhook_installation.cluster.timeline(
            JOBSETS, EVENTS, namespace=own_namespace
        ) as seen:
            await webhook_installation.cluster.api.create(job.trainjob())
            await webhook_installation.cluster.api.create(_jobset(own_namespace, "hand"))
            await seen.until(
                lambda _: any(it.get("reason") == FAILED for it in seen.objects(EVENTS)),
                "it is told",
            )
            await seen.until(lambda _: bool(seen.objects(JOBSETS)), "the other one is made")
            meanwhile = {it["metadata"]["name"] for it in seen.objects(JOBSETS)}
            await webhook_installation.webhook.start()
            await seen.until(lambda _: len(seen.objects(JOBSETS)) == 2, "the JobSet is made")
    finally:
        if webhook_installation.webhook.process.identity is None:
            await webhook_installation.webhook.start()

    (note, *_) = (it["note"] for it in seen.objects(EVENTS) if it.get("reason") == FAILED)
    made = next(it for it in seen.objects(JOBSETS) if it["metadata"]["name"] == "job")
    assert meanwhile == {"hand"}
    assert "jobset-create.trainer-kai.dev" in note
    assert made["metadata"]["annotations"][ADMITTED] == "v1"


async def test_a_dry_run_shows_what_would_be(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """And nothing is made."""
    job = Submission(
        "job", "torch-distributed", own_namespace, 1, labels={QUEUE: "team-b"}
    ).trainjob()
    job["spec"]["suspend"] = True
    owner = await webhook_installation.cluster.api.create(job)
    await webhook_installation.cluster.until_found(JOBSETS, own_namespace, "job")

    shown = await webhook_installation.cluster.api.create(
        _owned(_jobset(own_namespace, "dry"), owner), dryRun="All"
    )

    assert shown["metadata"]["labels"] == {QUEUE: "team-b"}
    assert _template(shown, "node")["spec"]["schedulerName"] == KAI
    with pytest.raises(ApiError) as missing:
        await webhook_installation.cluster.api.get(JOBSETS, own_namespace, "dry")
    assert missing.value.status == 404


@pytest.mark.parametrize("mark", ["coscheduling", "volcano"])
async def test_another_scheduler_is_respected(
    webhook_installation: WebhookInstallation, own_namespace: str, mark: str
) -> None:
    """Who chose it by the runtime gets it; who asks for both is told what to remove."""
    stamped: dict[str, Any] = {
        "coscheduling": {"pod_labels": {"scheduling.x-k8s.io/pod-group": "job"}},
        "volcano": {"pod_annotations": {"scheduling.k8s.io/group-name": "job"}},
    }[mark]  # what Trainer stamps for such a policy
    await make_runtime(webhook_installation.cluster, own_namespace, **stamped)
    alone = Submission("alone", "own", own_namespace, 1, kind="TrainingRuntime")
    both = Submission(
        "both", "own", own_namespace, 1, kind="TrainingRuntime", labels={QUEUE: "team-b"}
    )
    async with webhook_installation.cluster.timeline(JOBSETS, namespace=own_namespace) as seen:
        await webhook_installation.cluster.api.create(alone.trainjob())
        with pytest.raises(ApiError) as refused:
            await webhook_installation.cluster.api.create(both.trainjob())
        await seen.until(lambda _: len(seen.objects(JOBSETS)) == 1, "one is made")

    (jobset,) = seen.objects(JOBSETS)
    message = str(refused.value)
    assert jobset["metadata"]["name"] == "alone"
    assert ADMITTED not in jobset["metadata"].get("annotations", {})
    assert "schedulerName" not in _template(jobset, "node")["spec"]
    assert (
        f"two schedulers are requested: another one by podGroupPolicy.{mark} of the runtime"
        in message
    )


def _template(jobset: Obj, name: str) -> Obj:
    jobs = {it["name"]: it for it in jobset["spec"]["replicatedJobs"]}
    template: Obj = jobs[name]["template"]["spec"]["template"]
    return template


async def _failures(cluster: Cluster, namespace: str) -> list[str]:
    """Return what Trainer failed at; its Secret for MPI it makes twice where its cache is stale."""
    events, _ = await cluster.api.list(EVENTS, namespace)
    notes = [it["note"] for it in events if it.get("reason") == FAILED]
    return [note for note in notes if "-mpi-ssh-auth" not in note]


def _pod_spec() -> Obj:
    return {"containers": [{"name": "node", "image": "none"}], "restartPolicy": "Never"}


def _jobset(namespace: str, name: str) -> Obj:
    job = {"parallelism": 2, "completions": 2, "template": {"spec": _pod_spec()}}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": "JobSet",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]},
    }


def _owned(jobset: Obj, owner: Obj) -> Obj:
    reference = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": "TrainJob",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {**jobset, "metadata": {**jobset["metadata"], "ownerReferences": [reference]}}


def _foreign() -> list[Obj]:
    """Return what nobody asked us about, some of it with names of ours."""
    job = {"parallelism": 0, "template": {"spec": _pod_spec()}}
    jobset = _jobset("", "hand")
    jobset["metadata"]["labels"] = {QUEUE: "team-b"}
    metadata = {"name": "bare", "labels": {QUEUE: "team-b", "app": "web"}}
    by_kai = {**_pod_spec(), "schedulerName": KAI}
    return [
        jobset,
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": job},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": by_kai},
    ]


async def _made(cluster: Cluster, obj: Obj, namespace: str) -> str:
    """Create an object; return what was stored, without what differs each time."""
    wanted = copy.deepcopy(obj)
    wanted["metadata"]["namespace"] = namespace
    made: Any = await cluster.api.create(wanted)
    for name in ("managedFields", "creationTimestamp", "resourceVersion"):
        made["metadata"].pop(name, None)
    return without_random(made, namespace)
