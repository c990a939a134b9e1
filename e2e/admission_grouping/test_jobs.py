"""Jobs and JobSets that users create, without a TrainJob: admitted, grouped, and not twice."""

import json
from typing import Any, Final

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.resources import JOBS, JOBSETS, PODS, Obj, Resource
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import condition
from e2e.fixtures.install import PODGROUPS, run_kubectl
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import PODGROUP, QUEUE, SUBGROUP, bind_by_podgroups

CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
ADMITTED: Final = "trainer-kai.dev/admitted"
MINIMUM: Final = "kai.scheduler/batch-min-member"
KAI: Final = "kai-scheduler"


def pod_template(scheduler: str = KAI, annotations: Any = None) -> Obj:
    containers = [{"name": "node", "image": "none"}]
    spec = {"schedulerName": scheduler, "restartPolicy": "Never", "containers": containers}
    return {"metadata": {"annotations": annotations or {}}, "spec": spec}


def job(name: str, pods: int = 2, scheduler: str = KAI, **parts: Any) -> Obj:
    """Return a Job; *parts* are of its metadata or its spec."""
    obj: Obj = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": pod_template(scheduler)},
    }
    for part, value in parts.items():
        is_meta = part in {"labels", "annotations", "ownerReferences"}
        obj["metadata" if is_meta else "spec"][part] = value
    return obj


def assigned(seen: Timeline, group: str) -> list[Obj]:
    return [
        it
        for it in seen.objects(PODS)
        if it["metadata"].get("annotations", {}).get(PODGROUP) == group
    ]


def groups(seen: Timeline) -> dict[str, Obj]:
    return {it["metadata"]["name"]: it for it in seen.objects(PODGROUPS)}


async def create(cluster: Cluster, namespace: str, obj: Obj) -> Obj:
    obj["metadata"]["namespace"] = namespace
    created: Obj = await cluster.api.create(obj)
    return created


async def test_jobs_of_users_and_of_cronjobs(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """A gang by the annotation, else with a minimum of one; a run is one PodGroup as well."""
    cluster = webhook_installation.cluster
    schedule = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job("x")["spec"]}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}}
    path = CRON_JOBS.path(own_namespace)
    owner = await cluster.api.request("POST", path, {**cron, "spec": schedule})
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "controller": True}
    reference["uid"] = owner["metadata"]["uid"]
    jobs = [
        job("gang", 4, annotations={MINIMUM: "4"}, labels={QUEUE: "team-a"}),
        job("single"),
        job("run", ownerReferences=[reference]),
        job("other", scheduler="default-scheduler", labels={"app": "x"}),
    ]
    async with cluster.timeline(JOBS, PODS, PODGROUPS, namespace=own_namespace) as seen:
        made = [await create(cluster, own_namespace, it) for it in jobs]
        gang, single, run = (
            f"pg-{it['metadata']['name']}-{it['metadata']['uid']}" for it in made[:3]
        )
        await seen.until(
            lambda _: [len(assigned(seen, it)) for it in (gang, single, run)] == [4, 2, 2],
            "all pods are in their PodGroups",
        )
        await seen.until(lambda _: len(groups(seen)) == 3, "the PodGroups exist")
        await seen.settle()

    found = groups(seen)
    assert {name: it["spec"]["minMember"] for name, it in found.items()} == {
        gang: 4,
        single: 1,
        run: 1,
    }
    assert found[gang]["spec"]["queue"] == "team-a"
    assert found[single]["spec"]["queue"] == "default-queue"
    assert all(SUBGROUP not in it["metadata"]["labels"] for it in seen.objects(PODS))
    assert all(it["metadata"]["labels"][QUEUE] == "team-a" for it in assigned(seen, gang))
    assert ADMITTED not in made[3]["metadata"].get("annotations", {})


async def test_a_jobset_of_a_user_runs_in_stages(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """As that of a TrainJob; the Jobs of a JobSet have no PodGroup of their own."""
    cluster = webhook_installation.cluster
    short = pod_template(annotations={RUN_SECONDS: "1s"})
    jobs: list[Obj] = [
        {
            "name": name,
            "template": {"spec": {"parallelism": n, "completions": n, "template": short}},
        }
        for name, n in (("data", 1), ("node", 2))
    ]
    jobs[1]["dependsOn"] = [{"name": "data", "status": "Complete"}]
    obj = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "bare", "labels": {QUEUE: "team-b"}},
        "spec": {"replicatedJobs": jobs},
    }
    async with cluster.timeline(JOBSETS, PODS, PODGROUPS, namespace=own_namespace) as seen:
        made = await create(cluster, own_namespace, obj)
        first, second = (f"pg-bare-{made['metadata']['uid']}-{it}" for it in ("data", "node"))

        def has_second_stage(_: State) -> bool:
            return len(assigned(seen, second)) == 2

        await bind_by_podgroups(cluster, seen, has_second_stage)
        await seen.until(lambda _: set(groups(seen)) == {first, second}, "there are two PodGroups")

    found = groups(seen)
    assert [it["metadata"]["annotations"]["trainer-kai.dev/stage"] for it in found.values()] == [
        "1/2",
        "2/2 after data Complete",
    ]
    assert {it["spec"]["queue"] for it in found.values()} == {"team-b"}
    assert {it["metadata"]["labels"][SUBGROUP] for it in assigned(seen, second)} == {
        "node-replica-0"
    }


async def test_a_suspended_job_changes_its_queue(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Its pods as well where the API server lets their template change; its PodGroup always."""
    cluster, api = webhook_installation.cluster, webhook_installation.cluster.api
    async with cluster.timeline(JOBS, PODS, PODGROUPS, namespace=own_namespace) as seen:
        made = await create(
            cluster, own_namespace, job("job", labels={QUEUE: "team-a"}, suspend=True)
        )
        group = f"pg-job-{made['metadata']['uid']}"

        async def merge(queue: str, *, suspend: bool = False) -> Obj:
            change = {"metadata": {"labels": {QUEUE: queue}}, "spec": {"suspend": suspend}}
            merged: Obj = await api.merge(JOBS, own_namespace, "job", change)
            return merged

        moved = await merge("team-b")
        assert moved["spec"]["template"]["metadata"]["labels"][QUEUE] == "team-b"
        await seen.until(lambda _: len(assigned(seen, group)) == 2, "both pods are there")
        kept = await merge("team-c")
        assert kept["metadata"]["labels"][QUEUE] == "team-b"
        await merge("team-b", suspend=True)
        await seen.until(lambda _: not seen.objects(PODS), "the pods are gone")
        await seen.until(lambda _: condition(seen.objects(JOBS)[0], "Suspended"), "it is suspended")
        is_undone = "startTime" not in seen.objects(JOBS)[0]["status"]  # Kubernetes 1.36 or later
        again = await merge("team-c")
        assert again["metadata"]["labels"][QUEUE] == "team-c"
        await seen.until(lambda _: len(assigned(seen, group)) == 2, "both pods are back")
        await seen.until(
            lambda _: [it["spec"]["queue"] for it in seen.objects(PODGROUPS)] == ["team-c"],
            "the PodGroup moved",
        )

    of_pods = again["spec"]["template"]["metadata"]["labels"][QUEUE]
    assert of_pods == ("team-c" if is_undone else "team-b")


async def test_what_kubectl_says_of_a_job(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """A queue label without our scheduler has no effect, and no user marks a Job."""
    cluster = webhook_installation.cluster
    of = ("--kubeconfig", str(cluster.kubeconfig), "-n", own_namespace, "create", "-f", "-")
    other = job("other", scheduler="default-scheduler", labels={QUEUE: "team-a"})
    other["metadata"]["annotations"] = {ADMITTED: "v1"}
    said = await run_kubectl(*of, given=json.dumps(other))
    assert (
        "Warning: spec.template.spec.schedulerName: the pods go to the scheduler "
        "default-scheduler, for which the label kai.scheduler/queue has no effect"
    ) in said.err
    assert f"Warning: metadata.annotations[{ADMITTED}]: removed" in said.err

    mark = {"metadata": {"annotations": {ADMITTED: "v1"}}}
    with pytest.raises(ApiError, match=r"must stay absent.*when the Job is created"):
        await cluster.api.merge(JOBS, own_namespace, "other", mark)
