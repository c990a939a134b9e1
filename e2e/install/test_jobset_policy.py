"""The overlay without a server: what the API server itself makes of the JobSets of TrainJobs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import Obj, namespace
from e2e.fixtures.install import install
from e2e.install.test_webhook_rules import WEBHOOK_CONFIGURATION, jobset
from tests.support.case import Case, ids
from trainer_kai.api.names import (
    COSCHEDULING_GROUP,
    INJECT,
    JOBSET_CONTROLLER,
    QUEUE,
    SCHEDULER_NAME,
    VOLCANO_GROUP,
)

OTHER: Final = "default-scheduler"
TEAM: Final = "with-a-queue"
NAMESPACES: Final[dict[str, dict[str, str]]] = {
    TEAM: {QUEUE: "of-the-namespace"},
    "without-a-queue": {},
    "taken-out": {QUEUE: "of-the-namespace", INJECT: "disabled"},
}


def template(scheduler: str = "", queue: str = "", **metadata: Any) -> Obj:
    """Return a pod template."""
    spec: Obj = {"containers": [{"name": "node", "image": "x"}], "restartPolicy": "Never"}
    if scheduler:
        spec["schedulerName"] = scheduler
    if queue:
        metadata = {**metadata, "labels": {QUEUE: queue, "kept": "yes"}}
    return {"spec": spec, **({"metadata": metadata} if metadata else {})}


def of_trainjob(*templates: Obj, queue: str = "", where: str = TEAM, manager: str = "") -> Obj:
    """Return a JobSet of a TrainJob."""
    made = jobset("one", WEBHOOK_CONFIGURATION, where)
    if manager:
        made["spec"]["managedBy"] = manager
    if queue:
        made["metadata"]["labels"] = {QUEUE: queue}
    made["spec"]["replicatedJobs"] = [
        {"name": f"job-{i}", "template": {"spec": {"template": it}}}
        for i, it in enumerate(templates)
    ]
    return made


# A JobSet -> the scheduler and the queue of each pod template.
CASES: Final = [
    Case(
        "all go to KAI, and to the queue of their namespace",
        of_trainjob(template(), template()),
        [(SCHEDULER_NAME, "of-the-namespace")] * 2,
    ),
    Case(
        "the queue of the JobSet is that of all its pods",
        of_trainjob(template(), template(SCHEDULER_NAME), queue="of-the-runtime"),
        [(SCHEDULER_NAME, "of-the-runtime")] * 2,
    ),
    Case(
        "what one template names is said of all",
        of_trainjob(template(), template(queue="of-a-template")),
        [(SCHEDULER_NAME, "of-a-template")] * 2,
    ),
    Case(
        "who names another scheduler is left alone",
        of_trainjob(template(OTHER), template()),
        [(OTHER, ""), (SCHEDULER_NAME, "of-the-namespace")],
    ),
    Case(
        "where nobody names a queue KAI takes its default",
        of_trainjob(template(), where="without-a-queue"),
        [(SCHEDULER_NAME, "")],
    ),
    Case(
        "a namespace can stay out",
        of_trainjob(template(), where="taken-out"),
        [("", "")],
    ),
    Case(
        "what volcano has marked stays with it",
        of_trainjob(template(annotations={VOLCANO_GROUP: "one"})),
        [("", "")],
    ),
    Case(
        "so does what coscheduling has marked",
        of_trainjob(template(labels={COSCHEDULING_GROUP: "one"})),
        [("", "")],
    ),
    Case(
        "one that is run elsewhere stays as it is",
        of_trainjob(template(), manager="kueue.x-k8s.io/multikueue"),
        [("", "")],
    ),
    Case(
        "one whose manager is named, and the usual one",
        of_trainjob(template(), manager=JOBSET_CONTROLLER),
        [(SCHEDULER_NAME, "of-the-namespace")],
    ),
    Case(
        "a JobSet of nobody is not ours",
        {**of_trainjob(template()), "metadata": {"name": "one", "namespace": TEAM}},
        [("", "")],
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def policy_cluster(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Return the shared chain while the policy is in force."""
    for name, labels in NAMESPACES.items():
        made = namespace(name)
        made["metadata"]["labels"] = labels
        await cluster.api.create(made)
    objects = await install(cluster, overlay="policy-only")
    await _until(cluster, SCHEDULER_NAME)
    yield cluster
    for obj in reversed(objects):
        path = f"/apis/{obj['apiVersion']}/{_PLURALS[obj['kind']]}/{obj['metadata']['name']}"
        await cluster.api.request("DELETE", path)
    await _until(cluster, "")


@pytest.mark.parametrize("case", CASES, ids=ids)
async def test_what_the_policy_makes_of_a_jobset(
    case: Case[Obj, list[tuple[str, str]]], policy_cluster: Cluster
) -> None:
    """The scheduler where none is named, and one queue; none on the JobSet itself."""
    made = await _try(policy_cluster, case.given)

    assert _conditions(made) == case.want
    assert made["metadata"].get("labels") == case.given["metadata"].get("labels")


async def test_what_is_there_stays(policy_cluster: Cluster) -> None:
    """Other labels of a template that gets a queue, and all of one that has it."""
    given = of_trainjob(template(queue="own"), template(labels={"app": "x"}))
    made = await _try(policy_cluster, given)
    first, second = (job["template"]["spec"]["template"] for job in _jobs(made))

    assert first["metadata"]["labels"] == {QUEUE: "own", "kept": "yes"}
    assert second["metadata"]["labels"] == {QUEUE: "own", "app": "x"}
    assert [it["name"] for it in second["spec"]["containers"]] == ["node"]


_PLURALS: Final = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}


async def _until(cluster: Cluster, scheduler: str) -> None:
    """Wait until the API server fills in this scheduler; on the way it may refuse everything."""
    async with patience(30):
        while True:
            with contextlib.suppress(ApiError):
                if _conditions(await _try(cluster, of_trainjob(template())))[0][0] == scheduler:
                    return
            await asyncio.sleep(0.1)


async def _try(cluster: Cluster, given: Obj) -> Obj:
    return await cluster.api.create(given, dryRun="All")


def _jobs(made: Obj) -> list[Obj]:
    found: list[Obj] = made["spec"]["replicatedJobs"]
    return found


def _conditions(made: Obj) -> list[tuple[str, str]]:
    templates = [job["template"]["spec"]["template"] for job in _jobs(made)]
    return [
        (
            it["spec"].get("schedulerName", ""),
            it.get("metadata", {}).get("labels", {}).get(QUEUE, ""),
        )
        for it in templates
    ]
