"""Which objects reach our webhooks, and what still works while no webhook answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.api import ApiError
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import (
    JOBS,
    JOBSETS,
    MUTATING_WEBHOOKS,
    PODS,
    TRAINJOBS,
    VALIDATING_WEBHOOKS,
    Obj,
    namespace,
)
from e2e.cluster.trainjobs import Submission, condition
from e2e.conftest import failed
from e2e.fixtures.install import DEPLOYMENTS, QUEUES, apply, install
from e2e.fixtures.queues import deployment, queue
from e2e.fixtures.runtimes import make_runtime
from e2e.install.recording_webhook import ReceivedReview, recording_webhook, trust
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    BATCH_MIN_MEMBER,
    GANG,
    GPU_FRACTION,
    GPU_MEMORY,
    INJECT,
    LAST_CHECKPOINT,
    QUEUE,
)

TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
WEBHOOK_CONFIGURATION: Final = {"apiVersion": TRAINER, "kind": "TrainJob", "controller": True}
REFUSED: Final = 'failed calling webhook "jobset-create.trainer-kai.dev"'
NAMESPACED: Final = {"plain": {}, "without": {INJECT: "disabled"}, "with": {INJECT: "enabled"}}


def _to(scheduler: str | None = None, **more: Any) -> Obj:
    """Return a pod template that goes to a scheduler."""
    spec: Obj = {"containers": [{"name": "node", "image": "x"}], "restartPolicy": "Never"}
    if scheduler is not None:
        spec["schedulerName"] = scheduler
    return {"spec": spec, **more}


# An owner of a JobSet that is made -> whether it reaches us.
OWNERS: Final[list[tuple[Obj | None, bool]]] = [
    (WEBHOOK_CONFIGURATION, True),
    ({**WEBHOOK_CONFIGURATION, "apiVersion": "trainer.kubeflow.org/v2"}, True),
    (None, False),
    ({**WEBHOOK_CONFIGURATION, "controller": False}, False),
    ({"apiVersion": TRAINER, "kind": "TrainJob"}, False),
    ({**WEBHOOK_CONFIGURATION, "kind": "Job"}, False),
    ({**WEBHOOK_CONFIGURATION, "apiVersion": "trainer.kubeflow.org.example.com/v1"}, False),
    ({**WEBHOOK_CONFIGURATION, "apiVersion": "v1"}, False),
]
PATCH: Final = {"manager": "example.com/a", "trainingRuntimeSpec": {"template": {}}}
# What of a TrainJob is changed -> whether it reaches us.
CHANGES: Final[list[tuple[Obj, bool]]] = [
    ({"spec": {"suspend": False}}, False),
    ({"spec": {"runtimePatches": [PATCH]}}, True),
    ({"spec": {"trainer": {"numNodes": 3}}}, True),
    ({"metadata": {"labels": {"example.com/any": "thing"}}}, True),
    ({"metadata": {"annotations": {"example.com/any": "thing"}}}, False),
    ({"metadata": {"annotations": {GPU_FRACTION: "0.5"}}}, True),
    ({"metadata": {"annotations": {LAST_CHECKPOINT: "2026-01-31T12:00:00Z"}}}, True),
    ({"metadata": {"finalizers": ["example.com/held"]}}, False),
]
OTHERS: Final = "default-scheduler"
LABELLED: Final = {"metadata": {"labels": {QUEUE: "team-a"}}}
MARK: Final = {ADMITTED: ADMITTED_MARK}  # an annotation
# Pod templates of a TrainJob's JobSet, labels of the JobSet or our mark -> whether it reaches us.
LEFT: Final[dict[str, tuple[list[Any], Obj, bool]]] = {
    "all-go-to-another": ([_to(OTHERS), _to("volcano")], {}, False),
    "one-says-nothing": ([_to(OTHERS), _to()], {}, True),
    "one-says-none": ([_to(OTHERS), _to("")], {}, True),
    "one-is-ours": ([_to(OTHERS), _to("kai-scheduler")], {}, True),
    "other-labels": ([_to(OTHERS, metadata={"labels": {"a": "b"}})], {"a": "b"}, False),
    "a-template-names-a-queue": ([_to(OTHERS, **LABELLED)], {}, True),
    "it-is-marked": ([_to(OTHERS, metadata={"labels": {GANG: "Main"}})], {}, True),
    "it-says-that-we-saw-it": ([_to(OTHERS)], MARK, True),
    "the-jobset-names-a-queue": ([_to(OTHERS)], {QUEUE: "team-a"}, True),
    "no-pods-at-all": ([], {}, True),
}
CRON_JOB: Final = {"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}
OURS: Final = _to("kai-scheduler")
GANG_OF: Final = {BATCH_MIN_MEMBER: "2"}
AGAIN: Final = _to("kai-scheduler", metadata={"labels": {GANG: "Main"}})
# The owner, annotations and pod template of a Job -> how often we are asked, whether it needs us.
JOBS_OF: Final[dict[str, tuple[Obj | None, Obj, Obj, int, bool]]] = {
    "ours": (None, {}, OURS, 1, False),
    "of-another": (None, GANG_OF, _to(), 0, False),
    "a-gang": (None, GANG_OF, OURS, 1, True),
    "made-again": (None, {}, AGAIN, 1, True),
    "a-run": (CRON_JOB, GANG_OF, OURS, 1, True),
    "a-single-run": (CRON_JOB, {}, OURS, 1, False),
    "of-a-jobset": (
        {**CRON_JOB, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"},
        GANG_OF,
        AGAIN,
        0,
        False,
    ),
    "of-another-cronjob": ({**CRON_JOB, "apiVersion": "a.io/v1"}, GANG_OF, OURS, 0, False),
    "marked": (None, MARK, _to(), 1, False),
}
# What no JobSet can be like: a rule that fails refuses it. Where nobody can tell it reaches us.
BROKEN: Final[dict[str, Any]] = {
    "no-spec": None,
    "a-word": "spec",
    "no-jobs": {},
    "jobs-are-a-word": {"replicatedJobs": "jobs"},
    "a-job-is-a-word": {"replicatedJobs": ["job"]},
    "a-job-is-empty": {"replicatedJobs": [{}]},
    "a-job-is-null": {"replicatedJobs": [None]},
    "its-template-is-a-number": {"replicatedJobs": [{"template": 1}]},
    "its-job-is-a-list": {"replicatedJobs": [{"template": {"spec": []}}]},
    "its-pods-are-null": {"replicatedJobs": [{"template": {"spec": {"template": None}}}]},
    "its-pods-are-empty": {"replicatedJobs": [{"template": {"spec": {"template": {}}}}]},
    "a-scheduler-is-a-number": {
        "replicatedJobs": [{"template": {"spec": {"template": {"spec": {"schedulerName": 1}}}}}]
    },
    "metadata-is-a-word": {
        "replicatedJobs": [
            {"template": {"spec": {"template": {"spec": {"schedulerName": "x"}, "metadata": "x"}}}}
        ]
    },
    "labels-are-a-list": {
        "replicatedJobs": [
            {
                "template": {
                    "spec": {
                        "template": {
                            "spec": {"schedulerName": "x"},
                            "metadata": {"labels": [QUEUE]},
                        }
                    }
                }
            }
        ]
    },
}
UNMARKED: Final = {"metadata-is-a-word", "labels-are-a-list"}  # of these, all else is readable


_OWNED: Final = {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "1"}
# What of a Deployment for our scheduler is changed -> whether its creation reaches us.
DEPLOYMENTS_OF: Final[list[tuple[Obj, bool]]] = [
    ({}, True),
    ({"scheduler": OTHERS}, False),
    ({"scheduler": OTHERS, "labels": {QUEUE: "a"}}, True),
    ({"scheduler": OTHERS, "of_pods": {QUEUE: "a"}}, True),
    ({"scheduler": OTHERS, "labels": {"a": "b"}}, False),
    ({"ownerReferences": [{**_OWNED, "controller": True}]}, False),
    ({"ownerReferences": [_OWNED]}, True),
]


def _changed(obj: Obj, change: Obj) -> Obj:
    """Return a Deployment with another scheduler, labels or owners."""
    template = obj["spec"]["template"]
    template["spec"]["schedulerName"] = change.get("scheduler", "kai-scheduler")
    template["metadata"]["labels"] |= change.get("of_pods", {})
    for name in change.keys() & {"labels", "ownerReferences"}:
        obj["metadata"][name] = change[name]
    return obj


async def _apply_dry(cluster: Cluster, obj: Obj) -> None:
    await apply(cluster, obj, dryRun="All")


def jobset(name: str, owner: Mapping[str, Any] | None, where: str = "plain") -> Obj:
    """Return a JobSet of one suspended Job."""
    metadata: Obj = {"name": name, "namespace": where}
    if owner is not None:
        metadata["ownerReferences"] = [{"name": "job", "uid": "1", **owner}]
    pod = {"containers": [{"name": "node", "image": "x"}], "restartPolicy": "Never"}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    spec = {"replicatedJobs": [job], "suspend": True}
    return {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "metadata": metadata, "spec": spec}


def pod(name: str, where: str = "plain", node: str = "", **labels: str) -> Obj:
    """Return a pod, bound to a node if one is named."""
    metadata = {"name": name, "namespace": where, "labels": labels}
    spec: Obj = {"containers": [{"name": "node", "image": "x"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# The scheduler of a pod, its annotations and its namespace -> whether its creation reaches us.
SHARING: Final[dict[str, tuple[str, Obj | None, str, bool]]] = {
    "a-fraction": ("kai-scheduler", {GPU_FRACTION: "0.5"}, "plain", True),
    "memory": ("kai-scheduler", {GPU_MEMORY: "100"}, "with", True),
    "no-share": ("kai-scheduler", {"team": "a"}, "plain", False),
    "nothing": ("kai-scheduler", None, "plain", False),
    "of-another": ("default-scheduler", {GPU_FRACTION: "0.5"}, "plain", False),
    "opted-out": ("kai-scheduler", {GPU_FRACTION: "0.5"}, "without", False),
    "of-the-system": ("kai-scheduler", {GPU_FRACTION: "0.5"}, "kube-system", False),
}


def _sharing(name: str, scheduler: str, annotations: Obj | None, where: str) -> Obj:
    """Return a pod of a scheduler, with annotations."""
    made = pod(name, where)
    made["metadata"]["annotations"] = annotations
    made["spec"]["schedulerName"] = scheduler
    return made


class RecordedReviews(NamedTuple):
    """A chain with our webhook configurations, and what the API server asks there."""

    cluster: Cluster
    port: int
    reviews: list[ReceivedReview]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def recorded_reviews(request: pytest.FixtureRequest) -> AsyncIterator[RecordedReviews]:
    """Return a chain whose questions are answered and written down."""
    async with running_cluster(Options(name="test-reach")) as cluster:
        port = cluster.free_port()
        await _namespaces(cluster)
        async with recording_webhook(cluster, port) as asked:
            await install(cluster, port=port)
            await _until_reviewed(cluster, asked)
            yield RecordedReviews(cluster, port, asked)
        if failed(request.config):
            cluster.keep_logs()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def unreachable_webhook(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Return a chain with our webhook configurations, and no webhook that answers."""
    async with running_cluster(Options(name="test-deaf")) as cluster:
        await cluster.add_nodes(1)
        await _namespaces(cluster)
        submitted = Submission("held", "torch-distributed", "plain").trainjob()
        await cluster.api.create(submitted | {"spec": {**submitted["spec"], "suspend": True}})
        await cluster.while_alive(cluster.until_found(JOBSETS, "plain", "held"))
        await install(cluster, port=cluster.free_port())
        await _until_refused(cluster)
        yield cluster
        if failed(request.config):
            cluster.keep_logs()


async def test_only_what_is_ours_reaches_us(recorded_reviews: RecordedReviews) -> None:
    """JobSets of TrainJobs and the pods that we marked; asked for by dry runs, so nothing stays."""
    cluster, _, asked = recorded_reviews
    _new(asked)
    for i, (owner, _) in enumerate(OWNERS):
        await cluster.api.create(jobset(f"owned-{i}", owner), dryRun="All")
    created = {f"owned-{i}" for i, (_, reaches) in enumerate(OWNERS) if reaches}
    assert _new(asked) == {ReceivedReview("/mutate/jobset", "CREATE", name) for name in created}

    marked = jobset("says-that-we-saw-it", None)
    marked["metadata"]["annotations"] = MARK
    await cluster.api.create(marked, dryRun="All")
    assert _new(asked) == {ReceivedReview("/mutate/jobset", "CREATE", "says-that-we-saw-it")}

    for i, labels in enumerate([{GANG: "node"}, {}, {"example.com/gang": "node"}]):
        await cluster.api.create(pod(f"pod-{i}", **labels), dryRun="All")
    await cluster.api.create(pod("bound", node="node-0", **{GANG: "node"}), dryRun="All")
    assert _new(asked) == {ReceivedReview("/mutate/pod", "CREATE", "pod-0")}
    for name, (scheduler, annotations, where, _) in SHARING.items():
        await cluster.api.create(_sharing(name, scheduler, annotations, where), dryRun="All")
    reached = {
        ReceivedReview("/mutate/gpu-share", "CREATE", it) for it in SHARING if SHARING[it][3]
    }
    assert _new(asked, "/mutate/gpu-share") == reached

    for where in ("kube-system", "trainer-kai", "without", "with"):
        await cluster.api.create(jobset(f"in-{where}", WEBHOOK_CONFIGURATION, where), dryRun="All")
    assert {name for _, _, name in _new(asked)} == {"in-with"}


async def test_only_suspended_jobsets_that_stay_are_asked_about_again(
    recorded_reviews: RecordedReviews,
) -> None:
    """A running JobSet cannot be changed, and the end of one is none of our business."""
    cluster, _, asked = recorded_reviews
    for name, suspend in (("held", True), ("running", False), ("leaving", True)):
        submitted = Submission(name, "torch-distributed", "plain").trainjob()
        submitted["spec"]["suspend"] = suspend
        await cluster.api.create(submitted)
        await cluster.while_alive(cluster.until_found(JOBSETS, "plain", name))
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await cluster.api.merge(JOBSETS, "plain", "leaving", held)
    await cluster.api.delete(TRAINJOBS, "plain", "leaving", propagationPolicy="Foreground")
    await _until_leaving(cluster)
    _new(asked)

    label = {"metadata": {"labels": {"example.com/any": "thing"}}}
    for name in ("held", "running", "leaving"):
        await cluster.api.merge(JOBSETS, "plain", name, label)
    assert _new(asked) == {ReceivedReview("/mutate/jobset", "UPDATE", "held")}

    stop = {"spec": {"suspend": True}}  # Trainer takes it back at once, which counts as well
    await cluster.api.merge(JOBSETS, "plain", "running", stop)
    assert ReceivedReview("/mutate/jobset", "UPDATE", "running") in _new(asked)
    gone: Obj = {"metadata": {"finalizers": None}}
    await cluster.api.merge(JOBSETS, "plain", "leaving", gone)
    assert "leaving" not in {name for _, _, name in _new(asked)}

    for change, reaches in CHANGES:
        await _try(cluster, change)
        wanted = {ReceivedReview("/validate/trainjob", "UPDATE", "held")} if reaches else set()
        found = {it for it in _new(asked) if it.path == "/validate/trainjob"}
        assert found == wanted, change


async def test_of_queues_only_what_counts_reaches_us(recorded_reviews: RecordedReviews) -> None:
    """Their spec and their deletion, and neither their status nor a label."""
    cluster, _, asked = recorded_reviews
    _new(asked)
    team = queue("team", 8)
    await apply(cluster, team)
    assert _new(asked, "/validate/queue") == {ReceivedReview("/validate/queue", "CREATE", "team")}

    label: Obj = {"metadata": {"labels": {"example.com/any": "thing"}}}
    await cluster.api.merge(QUEUES, None, "team", label)
    used: Obj = {"status": {"allocated": {"cpu": "1"}}}
    await cluster.api.merge(QUEUES, None, "team", used, subresource="status")
    await cluster.api.merge(QUEUES, None, "team", {"spec": team["spec"]})
    assert _new(asked, "/validate/queue") == set()
    await cluster.api.merge(QUEUES, None, "team", {"spec": {"priority": 7}})
    assert _new(asked, "/validate/queue") == {ReceivedReview("/validate/queue", "UPDATE", "team")}

    held: Obj = {"metadata": {"finalizers": ["example.com/held"]}}
    await cluster.api.merge(QUEUES, None, "team", held)
    await cluster.api.delete(QUEUES, None, "team")
    assert _new(asked, "/validate/queue") == {ReceivedReview("/validate/queue", "DELETE", "team")}
    await cluster.api.delete(QUEUES, None, "team")
    gone: Obj = {"metadata": {"finalizers": None}, "spec": {"priority": 8}}
    await cluster.api.merge(QUEUES, None, "team", gone)
    assert _new(asked, "/validate/queue") == set()


async def test_of_deployments_only_what_uses_us_reaches_us(
    recorded_reviews: RecordedReviews,
) -> None:
    """Those with our scheduler or a queue; not when they are scaled, or their status changes."""
    cluster, _, asked = recorded_reviews
    _new(asked)
    for i, (change, _) in enumerate(DEPLOYMENTS_OF):
        await _apply_dry(cluster, _changed(deployment(f"d-{i}", "plain", 1), change))
    created = {f"d-{i}" for i, (_, reaches) in enumerate(DEPLOYMENTS_OF) if reaches}
    assert _new(asked, "/validate/workload") == {
        ReceivedReview("/validate/workload", "CREATE", it) for it in created
    }
    for where in ("kube-system", "without"):
        await _apply_dry(cluster, deployment("elsewhere", where, 1))
    assert _new(asked, "/validate/workload") == set()

    await apply(cluster, deployment("d", "plain", 1, replicas=0))
    _new(asked)
    scale: Obj = {"spec": {"replicas": 1}}
    await cluster.api.merge(DEPLOYMENTS, "plain", "d", scale, subresource="scale")
    await cluster.api.merge(DEPLOYMENTS, "plain", "d", {"spec": {"paused": True}})
    await cluster.api.merge(DEPLOYMENTS, "plain", "d", {"metadata": {"annotations": {"a": "b"}}})
    assert _new(asked, "/validate/workload") == set()
    for change in ({"spec": {"replicas": 2}}, {"metadata": {"labels": {"a": "b"}}}):
        await cluster.api.merge(DEPLOYMENTS, "plain", "d", change)
        assert _new(asked, "/validate/workload") == {
            ReceivedReview("/validate/workload", "UPDATE", "d")
        }, change
    await cluster.api.delete(DEPLOYMENTS, "plain", "d")
    assert _new(asked, "/validate/workload") == set()


async def test_of_jobs_only_what_is_ours_reaches_us(recorded_reviews: RecordedReviews) -> None:
    """Once, also if it has to start as a whole; and later only another queue or pod template."""
    cluster, _, asked = recorded_reviews
    for name, (owner, annotations, template, times, _) in JOBS_OF.items():
        _new(asked)
        await cluster.api.create(_job(name, owner, annotations, template), dryRun="All")
        assert [it.path for it in asked if it.name == name].count("/mutate/job") == times, name

    created = _job("kept", None, {}, _to("kai-scheduler"))
    created["metadata"]["annotations"] = MARK
    created["spec"]["suspend"] = True
    await cluster.api.create(created)
    _new(asked)
    for change, reaches in (
        ({"metadata": {"labels": {"a": "b"}}}, False),
        ({"spec": {"suspend": False}}, False),
        ({"spec": {"suspend": True}, "metadata": {"labels": {QUEUE: "a"}}}, True),
    ):
        await cluster.api.merge(JOBS, "plain", "kept", change)
        wanted = {ReceivedReview("/mutate/job", "UPDATE", "kept")} if reaches else set()
        assert _new(asked, "/mutate/job") == wanted, change
    await cluster.api.delete(JOBS, "plain", "kept")


def _job(name: str, owner: Obj | None, annotations: Obj, template: Obj) -> Obj:
    owners = [{**owner, "name": "o", "uid": "u"}] if owner is not None else []
    metadata: Obj = {"namespace": "plain", "name": name, "ownerReferences": owners}
    metadata["annotations"] = annotations
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template},
    }


async def test_opting_in(recorded_reviews: RecordedReviews) -> None:
    """With the overlay only a namespace that asks for us reaches us."""
    cluster, port, asked = recorded_reviews
    await install(cluster, overlay="opt-in", port=port)
    try:
        await _until_reviewed(cluster, asked)
        async with patience(20):
            while (found := await _reviews_from_namespaces(cluster, asked)) != {"in-with"}:
                assert "in-with" in found
                await asyncio.sleep(0.1)  # until the API server goes by the overlay
    finally:
        await install(cluster, port=port)
        await _until_reviewed(cluster, asked)


async def _reviews_from_namespaces(cluster: Cluster, asked: list[ReceivedReview]) -> set[str]:
    _new(asked)
    for where in NAMESPACED:
        await cluster.api.create(jobset(f"in-{where}", WEBHOOK_CONFIGURATION, where), dryRun="All")
    return {name for _, _, name in _new(asked) if name.startswith("in-")}


async def test_what_goes_to_other_schedulers_does_not_reach_us(
    recorded_reviews: RecordedReviews,
) -> None:
    """Unless something of it asks for us; and whatever an object is like, the rule gives an answer.

    JobSet's own webhook is taken out of the way, for it lets nothing broken through to ours:
    this is the last test of its chain.
    """
    cluster, _, asked = recorded_reviews
    _new(asked)
    for name, (templates, words, _) in LEFT.items():
        made = jobset(name, WEBHOOK_CONFIGURATION)
        made["metadata"]["annotations" if words is MARK else "labels"] = words
        made["spec"]["replicatedJobs"] = [
            {"name": f"job-{i}", "template": {"spec": {"template": template}}}
            for i, template in enumerate(templates)
        ]
        await cluster.api.create(made, dryRun="All")
    reached = {name for _, _, name in _new(asked)} & LEFT.keys()
    assert reached == {name for name, (_, _, reaches) in LEFT.items() if reaches}

    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for found in (await cluster.api.list(kind))[0]:
            if found["metadata"]["name"].startswith("jobset-"):
                await cluster.api.delete(kind, None, found["metadata"]["name"])
    await _until_broken_ones_reach_us(cluster, asked)
    for name in BROKEN:
        await _try_broken(cluster, name)
    reached = {name for _, _, name in _new(asked)} & BROKEN.keys()
    assert reached == BROKEN.keys() - UNMARKED


async def test_nobody_waits_for_us_but_new_trainjobs(unreachable_webhook: Cluster) -> None:
    """With the webhook dead all goes on but JobSets of TrainJobs, and pods with shares of GPUs."""
    cluster = unreachable_webhook
    for name, (scheduler, annotations, where, reaches) in SHARING.items():
        tried = cluster.api.create(_sharing(name, scheduler, annotations, where), dryRun="All")
        if reaches:
            with pytest.raises(ApiError, match=r'webhook "gpu-share.trainer-kai.dev"'):
                await tried
        else:
            await tried
    for name, (owner, annotations, template, _, needs_us) in JOBS_OF.items():
        tried = cluster.api.create(_job(name, owner, annotations, template), dryRun="All")
        if needs_us:
            with pytest.raises(ApiError, match=r'webhook "job-gang.trainer-kai.dev"'):
                await tried
        else:
            await tried
    await cluster.api.create(jobset("foreign", None))
    await cluster.api.create(pod("marked", **{GANG: "node"}))
    label = {"metadata": {"labels": {"example.com/any": "thing"}}}
    await cluster.api.merge(JOBSETS, "plain", "held", label)
    await cluster.api.delete(JOBSETS, "plain", "held")
    await cluster.api.delete(PODS, "plain", "marked")
    with pytest.raises(ApiError, match=REFUSED):
        await cluster.api.create(jobset("ours", WEBHOOK_CONFIGURATION), dryRun="All")


async def test_who_goes_to_another_scheduler_runs_without_us(unreachable_webhook: Cluster) -> None:
    """With the webhook dead such a TrainJob has its pods at once, and runs."""
    cluster = unreachable_webhook
    schedulers = {"node": OTHERS}
    await make_runtime(cluster, "plain", schedulers=schedulers)
    job = Submission("elsewhere", "own", "plain", 2, kind="TrainingRuntime")
    async with cluster.timeline(PODS, TRAINJOBS, namespace="plain") as seen:
        await cluster.api.create(job.trainjob())
        await seen.until(lambda _: len(seen.objects(PODS)) == 2, "its pods exist", 10)
        for found in seen.objects(PODS):
            assert found["spec"]["schedulerName"] == OTHERS
            await cluster.api.bind("plain", found["metadata"]["name"], "node-0")
        await seen.until(
            lambda _: all(condition(it, "Ready") for it in seen.objects(PODS)), "they run"
        )


async def _namespaces(cluster: Cluster) -> None:
    for name, labels in NAMESPACED.items():
        made = namespace(name)
        made["metadata"]["labels"] = labels
        await cluster.api.create(made)


async def _try(cluster: Cluster, change: Obj) -> None:
    """Change the TrainJob that is suspended, by a dry run."""
    path = TRAINJOBS.path("plain", "held")
    dry = {"dryRun": "All"}
    merge = "application/merge-patch+json"
    await cluster.api.request("PATCH", path, change, query=dry, content_type=merge)


async def _until_reviewed(cluster: Cluster, asked: list[ReceivedReview]) -> None:
    """Wait until the API server knows the webhooks; what was asked until then is forgotten."""
    await trust(cluster)
    async with patience(20):
        while ReceivedReview("/mutate/jobset", "CREATE", "probe") not in asked:
            try:
                await cluster.api.create(
                    jobset("probe", WEBHOOK_CONFIGURATION, "with"), dryRun="All"
                )
            except ApiError as error:
                if REFUSED not in str(error):  # it does not know the authority yet
                    raise
            await asyncio.sleep(0.05)
    _new(asked)


async def _until_broken_ones_reach_us(cluster: Cluster, asked: list[ReceivedReview]) -> None:
    """Wait until the API server has forgotten JobSet's webhook, which is asked before ours."""
    async with patience(20):
        while ReceivedReview("/mutate/jobset", "CREATE", "a-word") not in asked:
            await _try_broken(cluster, "a-word")
            await asyncio.sleep(0.05)
    _new(asked)


async def _try_broken(cluster: Cluster, name: str) -> None:
    made = {**jobset(name, WEBHOOK_CONFIGURATION), "spec": BROKEN[name]}
    with contextlib.suppress(ApiError):
        await cluster.api.create(made, dryRun="All")


async def _until_refused(cluster: Cluster) -> None:
    async with patience(20):
        while True:
            try:
                await cluster.api.create(jobset("probe", WEBHOOK_CONFIGURATION), dryRun="All")
            except ApiError as error:
                assert REFUSED in str(error)  # noqa: PT017 most attempts raise nothing
                return
            await asyncio.sleep(0.05)


async def _until_leaving(cluster: Cluster) -> None:
    async with patience(20):
        while (
            "deletionTimestamp"
            not in ((await cluster.api.get(JOBSETS, "plain", "leaving"))["metadata"])
        ):
            await asyncio.sleep(0.05)


def _new(asked: list[ReceivedReview], path: str = "") -> set[ReceivedReview]:
    """Return what was asked since the last call, at one path or at any."""
    found = {it for it in asked if path in {"", it.path}}
    asked.clear()
    return found
