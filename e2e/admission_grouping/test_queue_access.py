"""Who may use a closed queue: no way leads a user into one of others without a grant."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest
import pytest_asyncio

from e2e.admission_grouping.test_trainjob_review import job, make_queues, until_known
from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import NAMESPACES, VALIDATING_WEBHOOKS, Obj
from e2e.conftest import make_namespace, next_name
from e2e.fixtures.api_user import ApiUser, api_user, grant_namespace, grant_queue
from e2e.fixtures.install import QUEUES
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import QUEUE
from e2e.fixtures.processes import WEBHOOK, running
from e2e.fixtures.runtimes import make_runtime

MINE: Final = {QUEUE: "team-a"}
ACCESS: Final = "trainer-kai.dev/access"
FORBIDDEN: Final = "may not use queue 'team-a': the queue is closed"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def strict(
    webhook_installation: WebhookInstallation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[WebhookInstallation]:
    """Return the shared chain with a webhook for which queues are closed that say nothing."""
    settings = {
        "TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED": "closed",
        "TRAINER_KAI_ADMISSION_UNKNOWN_QUEUE": "deny",
    }
    await webhook_installation.webhook.stop()
    await _annotate(webhook_installation.cluster, "open")
    try:
        folder = tmp_path_factory.mktemp("strict")
        async with running(webhook_installation.cluster, WEBHOOK, folder, settings) as webhook:
            yield webhook_installation._replace(webhook=webhook)
    finally:
        await _annotate(webhook_installation.cluster, None)
        await webhook_installation.webhook.start()


async def _annotate(cluster: Cluster, access: str | None) -> None:
    """Let the queue say so that the default queue is below."""
    fields = {"metadata": {"annotations": {ACCESS: access}}}
    await cluster.api.merge(QUEUES, None, "default-parent-queue", fields)


@pytest_asyncio.fixture(loop_scope="session")
async def ann(strict: WebhookInstallation, own_namespace: str) -> AsyncIterator[ApiUser]:
    """Return a user who may write TrainJobs here, and use no closed queue."""
    async with api_user(strict.cluster, "ann", own_namespace) as user:
        await make_queues(strict.cluster)
        await until_known(user, own_namespace)
        yield user


async def test_a_binding_grants_a_queue_in_one_namespace(
    strict: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """There and nowhere else, to one person and to no other; soon after it is made."""
    other = next_name()
    await make_namespace(strict.cluster, other)
    async with (
        api_user(strict.cluster, "ann", other),
        api_user(strict.cluster, "eve", own_namespace) as eve,
    ):
        await until_known(eve, own_namespace)
        before = await ann.create(job(own_namespace, labels=MINE))
        await grant_queue(strict.cluster, "team-a", "ann", own_namespace)
        async with patience(20):
            while (
                "user 'ann'" in (half := await ann.create(job(own_namespace, labels=MINE))).message
            ):
                await asyncio.sleep(0.2)
        await grant_namespace(strict.cluster, "team-a", own_namespace)
        async with patience(20):
            while (await ann.create(job(own_namespace, labels=MINE))).status != 201:
                await asyncio.sleep(0.2)
        output = [
            await ann.create(job(other, labels=MINE)),
            await eve.create(job(own_namespace, labels=MINE)),
            await ann.create(job(own_namespace, labels={QUEUE: "nowhere"})),
        ]
    await strict.cluster.api.delete(NAMESPACES, None, other)

    assert (before.status, before.warnings) == (403, [])
    assert f"user 'ann' and namespace {own_namespace!r} {FORBIDDEN}" in before.message
    assert f"trainer-kai queue allow team-a -n {own_namespace} --user ann" in before.message
    assert (half.status, half.warnings) == (403, [])
    assert f": namespace {own_namespace!r} {FORBIDDEN}" in half.message
    assert half.message.endswith(f"trainer-kai queue allow team-a -n {own_namespace}")
    assert [it.status for it in output] == [403, 403, 422]
    assert f"user 'ann' and namespace {other!r} {FORBIDDEN}" in output[0].message
    assert f": user 'eve' {FORBIDDEN}" in output[1].message
    assert "does not exist" in output[2].message


async def test_every_way_into_a_queue_is_asked_about(
    strict: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """Label, patches of JobSet and pods, a runtime of one's own; not what others chose."""
    own = {"runtime": "own", "kind": "TrainingRuntime"}
    pods = {"name": "node", "template": {"spec": {"template": {"metadata": {"labels": MINE}}}}}
    await make_runtime(strict.cluster, own_namespace, labels=MINE)
    await make_runtime(strict.cluster, own_namespace, "by-pods", pod_labels=MINE)
    await grant_namespace(strict.cluster, "team-a", own_namespace)
    for runtime in ("own", "by-pods"):  # until Trainer has heard of it
        theirs = job(own_namespace, **{**own, "runtime": runtime})
        await _until_let_in(strict.cluster, theirs, dryRun="All")
    ways: list[tuple[Obj, int]] = [
        ({"labels": MINE}, 403),
        ({"patches": {"metadata": {"labels": MINE}}}, 403),
        ({"patches": {"spec": {"replicatedJobs": [pods]}}}, 403),
        (own, 403),
        ({**own, "runtime": "by-pods"}, 403),
        ({}, 201),
    ]
    output = [await ann.create(job(own_namespace, **parts)) for parts, _ in ways]
    await strict.cluster.api.merge(NAMESPACES, None, own_namespace, {"metadata": {"labels": MINE}})
    by_namespace = await ann.create(job(own_namespace))

    assert [it.status for it in output] == [status for _, status in ways]
    assert all(f": user 'ann' {FORBIDDEN}" in it.message for it in output[:-1])
    assert (by_namespace.status, by_namespace.warnings) == (201, [])


async def test_who_changes_something_else_is_not_asked_about(
    strict: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """A controller suspends, patches and resumes what another user put into a queue."""
    patch = {"manager": "example.com/a", "trainingRuntimeSpec": {"template": {}}}
    made = job(own_namespace, labels=MINE, spec={"suspend": True})
    await grant_namespace(strict.cluster, "team-a", own_namespace)
    await _until_let_in(strict.cluster, made)
    output = [
        await ann.change(own_namespace, "job", fields)
        for fields in (
            {"metadata": {"labels": {"any": "thing"}}},
            {
                "metadata": {
                    "annotations": {"trainer-kai.dev/last-checkpoint": "2026-01-31T12:00:00Z"}
                }
            },
            {"spec": {"runtimePatches": [patch]}},
            {"metadata": {"labels": {QUEUE: None}}},
            {"metadata": {"labels": MINE}},
            {"spec": {"suspend": False}},
            {"spec": {"suspend": True}},
        )
    ]

    assert [it.status for it in output] == [200, 200, 200, 200, 403, 200, 200]
    assert f": user 'ann' {FORBIDDEN}" in output[4].message


async def _passes(user: ApiUser, namespace: str, fields: Obj) -> bool:
    """Say whether we let a change pass; Trainer refuses patches until the JobSet is suspended."""
    async with patience(20):
        while True:
            answer = await user.change(namespace, "job", fields)
            if answer.status == 200 or "trainer-kai.dev" in answer.message:
                return answer.status == 200
            await asyncio.sleep(0.2)


async def test_while_we_are_away_only_what_could_name_a_queue_waits(
    strict: WebhookInstallation, own_namespace: str, ann: ApiUser
) -> None:
    """With the failure policy Fail; who suspends, also with a patch as Kueue's, needs us not."""
    other: Obj = {"manager": "example.com/a", "trainingRuntimeSpec": {"template": {}}}
    labels = {"metadata": {"labels": {QUEUE: "default-queue"}}}
    one = {"trainingRuntimeSpec": {"template": labels}, "manager": "example.com/b"}
    pods = {"name": "node", "template": {"spec": {"template": labels}}}
    two = {**one, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [pods]}}}}
    changes: tuple[tuple[Obj, bool], ...] = (
        ({"spec": {"suspend": False}}, True),
        ({"spec": {"suspend": True, "runtimePatches": [other]}}, True),
        ({"metadata": {"annotations": {"kai.scheduler/preemption-delay": "5s"}}}, True),
        ({"spec": {"runtimePatches": [other, one]}}, False),
        ({"spec": {"runtimePatches": [other, two]}}, False),
        ({"spec": {"runtimePatches": []}}, True),
        (labels, False),
        ({"spec": {"trainer": {"numNodes": 2}}}, False),
    )
    await strict.cluster.api.create(job(own_namespace, spec={"suspend": True}))
    await strict.webhook.stop()
    try:
        async with failing(strict.cluster):
            async with patience(10):
                while (await ann.create(job(own_namespace, "later"))).status == 201:
                    await asyncio.sleep(0.1)
            output = [await _passes(ann, own_namespace, it) for it, _ in changes]
    finally:
        await strict.webhook.start()

    assert output == [goes for _, goes in changes]


async def _until_let_in(cluster: Cluster, made: Obj, **query: str) -> None:
    """Make a TrainJob as the administrator, as soon as the grant of its namespace is heard of."""
    async with patience(20):
        while True:
            with suppress(ApiError):
                await cluster.api.create(made, **query)
                return
            await asyncio.sleep(0.2)


@asynccontextmanager
async def failing(cluster: Cluster) -> AsyncIterator[None]:
    """Have nobody pass who cannot be judged."""
    found = await cluster.api.get(VALIDATING_WEBHOOKS, None, "kai-trainer")
    try:
        await _set_policy(cluster, found["webhooks"][0]["name"], "Fail")
        yield
    finally:
        await _set_policy(cluster, found["webhooks"][0]["name"], "Ignore")


async def _set_policy(cluster: Cluster, name: str, policy: str) -> None:
    found = await cluster.api.get(VALIDATING_WEBHOOKS, None, "kai-trainer")
    for hook in found["webhooks"]:
        if hook["name"] == name:
            hook["failurePolicy"] = policy
    await cluster.api.merge(
        VALIDATING_WEBHOOKS, None, "kai-trainer", {"webhooks": found["webhooks"]}
    )
