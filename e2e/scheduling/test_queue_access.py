"""No pod of a closed queue starts without a grant, whatever way it takes; all start with one."""

import re
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import until
from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission
from e2e.conftest import failed, make_namespace
from e2e.fixtures.install import PODGROUPS, QUEUES, apply
from e2e.fixtures.installation import Installation, namespace_in, run_installation
from e2e.fixtures.podgroups import PODGROUP, QUEUE, groups_in, pods_in
from e2e.fixtures.queues import queue, until_granted
from e2e.fixtures.runtimes import make_runtime
from e2e.fixtures.trainjobs import bare_pod

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
_RUNTIME: Final = "torch-distributed"
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments"
_CLOSED: Final = {QUEUE: "closed"}
_WAYS: Final = (
    "labelled",
    "patched",
    "runtime",
    "relabelled",
    "regrouped",
    "alone",
    "job",
    "deployment",
)
_WAITING: Final = re.compile(r'trainer_kai_podgroups_waiting\{reason="ForbiddenQueue"\} (\S+)')
_SOON_S: Final = 40.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def closed_queue_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    """Return a chain of two nodes, with a queue that nobody may use, and one that all may."""
    settings = {"TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED": "closed"}  # no webhook refuses then
    folder = tmp_path_factory.mktemp("gated")
    async with run_installation("test-gated", folder, 2, settings=settings) as installation:
        unannotated = queue("closed", 8)
        del unannotated["metadata"]["annotations"]
        await installation.cluster.api.request("POST", QUEUES.path(), unannotated)
        for name in ("closed", "default-queue"):
            await apply(installation.cluster, _role(name))
        await apply(installation.cluster, _binding("default-queue", "", "system:serviceaccounts"))
        yield installation
        if failed(request.config):
            installation.cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def closed_queue_namespace(closed_queue_installation: Installation) -> AsyncIterator[str]:
    """Return a namespace of the test's own in there."""
    async with namespace_in(closed_queue_installation) as name:
        yield name


async def test_no_way_leads_into_a_closed_queue(
    closed_queue_installation: Installation, closed_queue_namespace: str
) -> None:
    """Each of eight waits, with the reason that says why; a RoleBinding lets all of them start."""
    cluster = closed_queue_installation.cluster
    async with cluster.timeline(PODS, PODGROUPS, JOBSETS, namespace=closed_queue_namespace) as seen:
        await _by_trainjobs(cluster, closed_queue_namespace)
        await _by_an_edited_group(closed_queue_installation, closed_queue_namespace)
        await _by_others(cluster, closed_queue_namespace)
        await seen.until(lambda state: _ways(state) == {*_WAYS}, "there are pods of each")
        await until_refused(closed_queue_installation, len(_WAYS))
        await seen.until(lambda state: _reasons(state) == {"ForbiddenQueue"}, "all are told so")
        assert [it for it in seen.objects(PODS) if "nodeName" in it["spec"]] == []

        await apply(
            cluster,
            _binding(
                "closed", closed_queue_namespace, f"system:serviceaccounts:{closed_queue_namespace}"
            ),
        )
        await seen.until(lambda state: _ways(state, placed=True) == {*_WAYS}, "all start", _SOON_S)
        await until_refused(closed_queue_installation, 0)
        await seen.until(lambda state: _reasons(state) == {""}, "nobody is told so any more")
    for path in (_DEPLOYMENTS.format(closed_queue_namespace), JOBS.path(closed_queue_namespace)):
        await cluster.api.request("DELETE", path)  # they would make their pods anew


async def test_a_grant_in_every_namespace_starts_it_at_once(
    closed_queue_installation: Installation,
) -> None:
    """By a ClusterRoleBinding of the namespace's accounts, though nobody was asked before."""
    name = "granted"
    await make_namespace(closed_queue_installation.cluster, name)
    await apply(
        closed_queue_installation.cluster, _binding("closed", "", f"system:serviceaccounts:{name}")
    )
    await until_granted(closed_queue_installation.cluster, "closed", name)
    async with closed_queue_installation.cluster.timeline(PODS, namespace=name) as seen:
        await closed_queue_installation.cluster.api.create(bare_pod(name, "alone", "closed", 1))
        await seen.until(lambda state: _ways(state, placed=True) == {"alone"}, "it starts")
    seen.never(_is_told_to_wait, "it was refused at first")
    await closed_queue_installation.cluster.api.kill_pods(name)


async def _by_trainjobs(cluster: Cluster, namespace: str) -> None:
    """Submit TrainJobs whose labels, or those of what they are made of, name the queue."""
    await make_runtime(cluster, namespace, labels=_CLOSED)
    patches = {"metadata": {"labels": _CLOSED}}
    given = (
        Submission("labelled", _RUNTIME, namespace, 1, 1, labels=_CLOSED),
        Submission("patched", _RUNTIME, namespace, 1, 1, patches),
        Submission("runtime", "own", namespace, 1, 1, kind="TrainingRuntime"),
    )
    for one in given:
        await cluster.api.create(one.trainjob())
    suspended = Submission("relabelled", _RUNTIME, namespace, 1, 1).trainjob()
    suspended["spec"]["suspend"] = True
    async with cluster.timeline(JOBSETS, namespace=namespace) as seen:
        await cluster.api.create(suspended)
        await seen.until(
            lambda state: any(key.name == "relabelled" for key in state), "its JobSet exists"
        )
        await cluster.api.merge(JOBSETS, namespace, "relabelled", {"metadata": {"labels": _CLOSED}})
        await cluster.api.merge(TRAINJOBS, namespace, "relabelled", {"spec": {"suspend": False}})


async def _by_an_edited_group(installation: Installation, namespace: str) -> None:
    """Make a group in a queue that is open, and write the other one into it before it is whole."""
    cluster = installation.cluster
    group = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": namespace, "name": "regrouped"},
        "spec": {"minMember": 2, "queue": "default-queue"},
    }
    await apply(cluster, group)
    for i in range(2):
        if i:
            await cluster.api.merge(
                PODGROUPS, namespace, "regrouped", {"spec": {"queue": "closed"}}
            )
            await _until_known(installation, "regrouped", "closed")  # pods come by another watch
        pod = bare_pod(namespace, f"regrouped-{i}", "default-queue", 1)
        pod["metadata"]["annotations"] = {PODGROUP: "regrouped"}
        await cluster.api.create(pod)


async def _by_others(cluster: Cluster, namespace: str) -> None:
    """Make a pod, a Job and a Deployment."""
    await cluster.api.create(bare_pod(namespace, "alone", "closed", 1))
    job = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"namespace": namespace, "name": "job"},
        "spec": {"template": _template(restartPolicy="Never")},
    }
    await cluster.api.create(job)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": "deployment"},
        "spec": {
            "selector": {"matchLabels": {"app": "it"}},
            "template": _template(),
        },
    }
    await cluster.api.request("POST", _DEPLOYMENTS.format(namespace), deployment)


def _template(**spec: str) -> Obj:
    pod = bare_pod("", "", "closed", 1)
    labels = {**pod["metadata"]["labels"], "app": "it"}
    return {"metadata": {"labels": labels}, "spec": {**pod["spec"], **spec}}


def _ways(state: State, *, placed: bool = False) -> set[str]:
    """Return by which ways pods came that are there, or that have a node."""
    pods = [it for it in pods_in(state) if not placed or "nodeName" in it["spec"]]
    names = [it["metadata"]["name"] for it in pods]
    return {way for way in _WAYS if any(name.startswith(way) for name in names)}


def _reasons(state: State) -> set[str]:
    """Return what groups are told; "" for one that is told nothing."""
    found = [it.get("status", {}).get("schedulingConditions") for it in groups_in(state)]
    return {it[-1]["reasons"][-1]["reason"] if it else "" for it in found}


async def until_refused(installation: Installation, count: int) -> None:
    """Wait until so many PodGroups wait because of their queue."""
    url = installation.scheduler.ready_url.replace("/readyz", "/metrics")

    async def are_refused() -> bool:
        found = _WAITING.search(await installation.cluster.api.request("GET", url))
        return found is not None and float(found[1]) == count

    await until(are_refused, f"{count} units are forbidden")


async def _until_known(installation: Installation, group: str, queue: str) -> None:
    """Wait until the scheduler knows a group to be in a queue."""
    url = installation.scheduler.ready_url.replace("/readyz", "/snapshot")

    async def is_known() -> bool:
        known = (await installation.cluster.api.request("GET", url))["items"]
        groups = [it for it in known if it["kind"] == PODGROUPS.kind]
        found = [it["spec"] for it in groups if it["metadata"]["name"] == group]
        return [it.get("queue") for it in found] == [queue]

    await until(is_known, f"the scheduler knows {group} in {queue}")


def _is_told_to_wait(state: State) -> bool:
    conditions = [it for pod in pods_in(state) for it in pod["status"].get("conditions", ())]
    return any((it["type"], it["status"]) == ("PodScheduled", "False") for it in conditions)


def _role(queue: str) -> Obj:
    rule = {
        "apiGroups": ["scheduling.run.ai"],
        "resources": ["queues"],
        "resourceNames": [queue],
        "verbs": ["use"],
    }
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": _ROLES.kind,
        "metadata": {"name": f"use-{queue}"},
        "rules": [rule],
    }


def _binding(queue: str, namespace: str, group: str) -> Obj:
    """Let a group use a queue, in one namespace or in all."""
    metadata = {"name": f"use-{queue}-{group.replace(':', '-')}"}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": _ROLES.kind, "name": f"use-{queue}"},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": group}],
    }
