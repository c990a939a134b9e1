"""Reviews of TrainJobs on the real cluster: the messages that their author reads."""

import json
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import until
from e2e.cluster.resources import JOBSETS, TRAINJOBS, Obj
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.api_user import ApiUser, api_user
from e2e.fixtures.install import apply, run_kubectl
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.runtimes import make_runtime

EXCLUSIVE: Final = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
PATCH: Final = "spec.runtimePatches[0].trainingRuntimeSpec.template"
LABEL: Final = f"metadata.labels[{QUEUE}]"
CLOSED: Final = "annotation trainer-kai.dev/access of queue private"
UNBOUND: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
BELOW: Final = "has child queues and cannot hold workloads. Name one of the children: team-a"
MISSING: Final = "does not exist. Create the queue, or name an existing one"


@pytest_asyncio.fixture(loop_scope="session")
async def ann(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> AsyncIterator[ApiUser]:
    """Return a user who may write TrainJobs here, and use no closed queue."""
    async with api_user(webhook_installation.cluster, "ann", own_namespace) as user:
        await make_queues(webhook_installation.cluster)
        await until_known(user, own_namespace)
        yield user


async def make_queues(cluster: Cluster) -> None:
    """Make a queue, one below it, and then one that is closed: who knows that one knows all."""
    for name, parent in (("department", ""), ("team-a", "department"), ("private", "")):
        resources = dict.fromkeys(("gpu", "cpu", "memory"), UNBOUND)
        spec: Obj = {"resources": resources, **({"parentQueue": parent} if parent else {})}
        kind = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue"}
        metadata: Obj = {"name": name}
        if name == "private":
            metadata["annotations"] = {"trainer-kai.dev/access": "closed"}
        await apply(cluster, {**kind, "metadata": metadata, "spec": spec})


async def until_known(user: ApiUser, namespace: str) -> None:
    """Wait until the user may write, and the webhook answers and knows the queues."""

    async def is_refused() -> bool:
        answer = await user.create(job(namespace, labels={QUEUE: "private"}))
        return answer.status == 403 and CLOSED in answer.message

    await until(is_refused, "a TrainJob of a closed queue is refused")


def job(namespace: str, name: str = "job", **parts: Any) -> Obj:
    """Return a TrainJob; *parts* are of a `Submission`, of its spec or its annotations."""
    annotations, spec = parts.pop("annotations", None), parts.pop("spec", {})
    runtime = parts.pop("runtime", "torch-distributed")
    made = Submission(name, runtime, namespace, **parts).trainjob()
    if annotations:
        made["metadata"]["annotations"] = annotations
    made["spec"].update(spec)
    return made


class Row(NamedTuple):
    """What is made, and what is said about it: a refusal by its beginning, warnings by theirs."""

    parts: Obj
    refusal: str = ""
    warnings: tuple[str, ...] = ()


ODD: Final = {"trainer-kai.dev/last-checkpoint": "yesterday", "kai.scheduler/queue": "team-a"}
ROWS: Final = (
    Row({}),
    Row({"labels": {QUEUE: "team-a"}}),
    Row(
        {"labels": {QUEUE: "nowhere"}},
        warnings=(f"{LABEL}: queue 'nowhere' {MISSING}",),
    ),
    Row(
        {"labels": {QUEUE: "department"}},
        warnings=(f"{LABEL}: queue 'department' {BELOW}",),
    ),
    Row({"labels": {QUEUE: "Team_A"}}, f"{LABEL}: 'Team_A' must be 1 to 253 lower-case letters"),
    Row(
        {"patches": {"metadata": {"labels": {QUEUE: "team a"}}}},
        f"{PATCH}.metadata.labels[{QUEUE}]: the queue name from the label of the "
        "runtime's template: 'team a' must be",
    ),
    Row(
        {"patches": {"metadata": {"annotations": EXCLUSIVE}}}, "spec.runtimePatches: in the JobSet"
    ),
    Row(
        {"labels": {"kai.scheduler/que": "team-a"}, "annotations": ODD},
        warnings=(
            "metadata.annotations[trainer-kai.dev/last-checkpoint]: 'yesterday' must be a time",
            (
                "metadata.labels[kai.scheduler/que]: has no effect: unknown name. Did you "
                "mean kai.scheduler/queue?"
            ),
            f"metadata.annotations[{QUEUE}]: has no effect here: move it to metadata.labels",
        ),
    ),
    Row(
        {
            "labels": {QUEUE: "Team_A", "kai.scheduler/que": "x"},
            "spec": {"managedBy": "kueue.x-k8s.io/multikueue"},
        }
    ),
    Row(
        {"labels": {QUEUE: "team-a"}, "runtime": "own", "kind": "TrainingRuntime"},
        "spec.runtimeRef: two schedulers are requested: another one by podGroupPolicy.coscheduling",
    ),
    Row({"annotations": ODD, "runtime": "own", "kind": "TrainingRuntime"}),
)


async def test_what_is_said_when_one_is_made(
    webhook_installation: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """Refused, told or let alone; each by its field, in what kubectl shows."""
    coscheduled = {"scheduling.x-k8s.io/pod-group": "job"}  # as Trainer marks pods for it
    await make_runtime(webhook_installation.cluster, own_namespace, pod_labels=coscheduled)
    theirs = job(own_namespace, runtime="own", kind="TrainingRuntime")
    await webhook_installation.cluster.api.create(
        theirs, dryRun="All"
    )  # until Trainer has heard of its runtime
    for row in ROWS:
        answer = await ann.create(job(own_namespace, **row.parts))

        assert answer.status == (422 if row.refusal else 201), (row, answer)
        denied = 'admission webhook "trainjob.trainer-kai.dev" denied the request: '
        assert answer.message.startswith(denied + row.refusal) == bool(row.refusal), answer
        assert len(answer.warnings) == len(row.warnings), answer
        for warning, begins in zip(answer.warnings, row.warnings, strict=True):
            assert warning.startswith(begins)


async def test_kubectl_shows_it(
    webhook_installation: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """As warnings beside what was made, and as an error where it was not."""
    output = []
    for queue in ("nowhere", "Team_A", "private"):
        given = json.dumps(job(own_namespace, labels={QUEUE: queue}))
        of = ("--kubeconfig", str(webhook_installation.cluster.kubeconfig), "--as", ann.name)
        output.append(await run_kubectl(*of, "create", "--dry-run=server", "-f", "-", given=given))

    assert (output[0].status, output[0].out) == (
        0,
        "trainjob.trainer.kubeflow.org/job created (server dry run)\n",
    )
    assert output[0].err.startswith(f"Warning: {LABEL}: queue 'nowhere' does not exist")
    assert [it.status for it in output[1:]] == [1, 1]
    assert f"{LABEL}: 'Team_A' must be 1 to 253 lower-case letters" in output[1].err
    assert f"the queue is closed ({CLOSED})" in output[2].err
    assert f"trainer-kai queue allow private -n {own_namespace} --user {ann.name}" in output[2].err


class Step(NamedTuple):
    """What of a TrainJob is changed, and what it is refused with."""

    fields: Obj
    refusal: str = ""


def labelled(queue: str | None, **spec: Any) -> Obj:
    """Return another queue, and fields of the spec."""
    return {"metadata": {"labels": {QUEUE: queue}}, "spec": spec}


MOVES: Final = f"{LABEL}: the queue can change only while the TrainJob is suspended"
STEPS: Final = (
    Step(labelled("default-queue"), MOVES),
    Step(labelled(None), MOVES),
    Step({"metadata": {"labels": {"any": "thing"}}}),
    Step(labelled("default-queue", suspend=True)),
    Step(labelled("team-a")),
    Step(
        {"spec": {"trainer": {"numNodes": 2}}},
        "spec.trainer: cannot be added to an existing TrainJob",
    ),
    Step({"spec": {"suspend": False}}),
)


async def test_what_may_become_of_one_that_is_there(
    webhook_installation: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """Its queue only while it is suspended, its trainer never; and it is as it was after a no."""
    await ann.create(job(own_namespace, labels={QUEUE: "team-a"}), dry=False)
    await webhook_installation.cluster.until_found(JOBSETS, own_namespace, "job")
    for step in STEPS:
        answer = await ann.change(own_namespace, "job", step.fields)

        assert answer.status == (422 if step.refusal else 200), (step, answer)
        assert step.refusal in answer.message


async def test_what_was_let_in_is_never_refused_for_it(
    webhook_installation: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """Made while we were away, with all that is wrong, it is suspended, changed and resumed."""
    await webhook_installation.webhook.kill()
    try:
        wrong: Obj = {
            "labels": {QUEUE: "Team_A"},
            "patches": {"metadata": {"annotations": EXCLUSIVE}},
        }
        made = await ann.create(job(own_namespace, **wrong), dry=False)
    finally:
        await webhook_installation.webhook.start()
    refused = await ann.create(job(own_namespace, **wrong))
    answers = [
        await ann.change(own_namespace, "job", fields)
        for fields in (
            {"spec": {"suspend": True}},
            {"metadata": {"labels": {"any": "thing"}}},
            {"spec": {"suspend": False}},
        )
    ]

    assert (made.status, refused.status) == (201, 422)
    assert [(it.status, it.warnings) for it in answers] == [(200, [])] * 3
    await webhook_installation.cluster.api.delete(TRAINJOBS, own_namespace, "job")
