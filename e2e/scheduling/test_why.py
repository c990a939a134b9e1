"""`trainer-kai why` on the real chain, run by a user with the role `view` in one namespace."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import READY_SECONDS
from e2e.cluster.patience import patience
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBS, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import Submission, pod_annotations
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, finishing_pods, groups_in, is_complete, pods_in
from e2e.fixtures.trainjobs import end_stage_now
from tests.support.repository import ROOT

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = Resource(_RBAC, "v1", "roles", "Role")
_BINDINGS: Final = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
_LABELS: Final = {QUEUE: "default-queue"}
_USER: Final = "user"


class WhyOutput(NamedTuple):
    """The output of the command."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """Return the document."""
        assert self.code < 2, self.err
        return json.loads(self.out)


class User(NamedTuple):
    """A user with the role `view` in a namespace."""

    namespace: str
    kubeconfig: Path

    async def why(self, *arguments: str) -> WhyOutput:
        """Run `trainer-kai why`."""
        return await sentences_of(
            "why", *arguments, "-n", self.namespace, kubeconfig=self.kubeconfig
        )


async def sentences_of(*arguments: str, kubeconfig: Path) -> WhyOutput:
    """Run a command as a user does."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainer_kai.cli", *arguments),
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)},
    )
    out, err = await process.communicate()
    return WhyOutput(process.returncode or 0, out.decode(), err.decode())


@pytest_asyncio.fixture(loop_scope="session")
async def user(installation: Installation, own_namespace: str) -> AsyncIterator[User]:
    """Return a user that may view the namespace, and nothing outside it."""
    metadata = {"namespace": own_namespace, "name": _USER}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    await installation.cluster.api.create(account)
    await _permit(installation.cluster, own_namespace)
    yield User(
        own_namespace, await installation.cluster.service_account_kubeconfig(own_namespace, _USER)
    )


async def _permit(cluster: Cluster, namespace: str) -> None:
    """Let the user view the namespace and its TrainJobs, as Kubeflow does; no JobSets."""
    rules = [{"apiGroups": [TRAINJOBS.group], "resources": ["trainjobs"], "verbs": ["get"]}]
    role = {"metadata": {"namespace": namespace, "name": "trainjobs"}, "rules": rules}
    await cluster.api.request("POST", _ROLES.path(namespace), _typed(_ROLES, role))
    for kind, name in (("ClusterRole", "view"), ("Role", "trainjobs")):
        binding = {
            "metadata": {"namespace": namespace, "name": f"user-{name}"},
            "roleRef": {"apiGroup": _BINDINGS.group, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": _USER}],
        }
        await cluster.api.request("POST", _BINDINGS.path(namespace), _typed(_BINDINGS, binding))


def _typed(resource: Resource, fields: Obj) -> Obj:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **fields}


def all_run(job: str, number: int) -> Callable[[State], bool]:
    """Return whether so many pods of a TrainJob run."""

    def is_so(state: State) -> bool:
        own = [pod for pod in pods_in(state) if pod["metadata"]["name"].startswith(f"{job}-")]
        return [pod["status"].get("phase") for pod in own].count("Running") == number

    return is_so


def has_message(job: str) -> Callable[[State], bool]:
    """Return whether the PodGroup of a TrainJob has a reason why it waits."""

    def is_so(state: State) -> bool:
        own = [it for it in groups_in(state) if it["metadata"]["name"].startswith(f"pg-{job}-")]
        return any(it.get("status", {}).get("schedulingConditions") for it in own)

    return is_so


def torch(namespace: str, name: str, nodes: int, gpus: int) -> Obj:
    """Return a TrainJob that never ends."""
    return Submission(name, "torch-distributed", namespace, nodes, gpus, labels=_LABELS).trainjob()


async def test_a_trainjob_that_waits_for_free_resources(
    installation: Installation, own_namespace: str, user: User
) -> None:
    """With numbers and exit code 1; once another has ended it runs, and nothing waits."""
    api = installation.cluster.api
    async with installation.cluster.timeline(PODGROUPS, PODS, namespace=own_namespace) as seen:
        await api.create(torch(own_namespace, "first", 8, 5))
        await seen.until(all_run("first", 8), "the first runs")
        await api.create(torch(own_namespace, "second", 2, 8))
        await seen.until(has_message("second"), "the second has a reason")
        output = await user.why("second")
        document = await user.why("trainjob/second", "-o", "json")
        of_pod = await user.why("pod/first-node-0-0" + _rest(seen.state, "first-node-0-0"))
        async with patience(30):  # what queues have is written now and then
            while (queues := await _listed(installation.cluster))[:2] != [40, 56]:
                await asyncio.sleep(0.2)
        await api.delete(TRAINJOBS, own_namespace, "first")
        await seen.until(all_run("second", 2), "the second runs")
        later = await user.why("second")

    assert queues[2:] == ["default-queue", "default-parent-queue"]
    assert (output.code, output.err) == (1, "")
    assert re.search(r"Fragmented \(for \d+s\): 0 of 2 pods fit", output.out), output.out
    assert "1 PodGroup → 2 pods: 2 waiting" in output.out
    assert "not known" not in output.out
    assert document.code == 1
    (podgroup,) = document.answer["podGroups"]
    assert podgroup["reason"]["title"] == "Fragmented"
    assert "8 GPU" in podgroup["reason"]["message"]
    assert (podgroup["pods"]["waiting"], podgroup["members"]) == (2, "2 node")
    assert of_pod.code == 0
    assert (later.code, later.err) == (0, "")
    assert "runs" in later.out
    assert "2 running" in later.out


async def _listed(cluster: Cluster) -> list[Any]:
    """Return what the default queue has and wants, its name and its parent's."""
    output = await sentences_of("queue", "list", "-o", "json", kubeconfig=cluster.kubeconfig)
    (queue,) = (it for it in output.answer["queues"] if it["name"] == "default-queue")
    has = [queue[name]["gpu"] for name in ("allocated", "requested")]
    return [*has, queue["name"], queue["parent"]]


def _rest(state: State, prefix: str) -> str:
    names: list[str] = [pod["metadata"]["name"] for pod in pods_in(state)]
    return next(name for name in names if name.startswith(prefix)).removeprefix(prefix)


async def test_a_podgroup_does_not_wait_for_expected_pods(
    installation: Installation, own_namespace: str, user: User
) -> None:
    """While the workers become ready the PodGroup runs; a note names the launcher."""
    api = installation.cluster.api
    installed = await api.get(CLUSTER_RUNTIMES, None, "deepspeed-distributed")
    slow = {READY_SECONDS: "600s"}  # each stage lasts until the one before has been asked about
    patches = _both(finishing_pods(installed, "600s"), pod_annotations({"node": slow}))
    job = Submission("job", "deepspeed-distributed", own_namespace, 3, 1, patches, labels=_LABELS)
    async with installation.cluster.timeline(
        TRAINJOBS, PODGROUPS, PODS, namespace=own_namespace
    ) as seen:
        await api.create(job.trainjob())
        await seen.until(all_run("job", 2), "the workers run")
        early = await user.why("job", "-o", "json")
        await end_stage_now(installation.cluster, pods_in(seen.state), READY_SECONDS)
        await seen.until(all_run("job", 3), "the launcher runs, too")
        whole = await user.why("job", "-o", "json")
        await end_stage_now(installation.cluster, pods_in(seen.state))
        await seen.until(is_complete, "the TrainJob is Complete", 60)
        after = await user.why("job")

    (podgroup,) = early.answer["podGroups"]
    assert (early.code, podgroup["state"], podgroup["pods"]["running"]) == (0, "runs", 2)
    assert podgroup["note"] == (
        "the pods of launcher are created when the others are Ready, and resources are reserved for"
        " them"
    )
    assert (whole.code, whole.answer["podGroups"][0]["pods"]["running"]) == (0, 3)
    assert (after.code, after.out.split()[2]) == (0, "complete")


def _both(one: Any, other: Any) -> Any:
    """Return two patches as one."""
    jobs = {job["name"]: job for job in (*other["spec"]["replicatedJobs"],)}
    jobs |= {job["name"]: job for job in one["spec"]["replicatedJobs"]}
    return {"spec": {"replicatedJobs": [*jobs.values()]}}


def _plain_job(namespace: str, pods: int, gpus: int) -> Obj:
    """Return a batch Job that no TrainJob owns: a PodGroup whose minimum is one pod."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "none", "resources": resources}],
    }
    template = {"metadata": {"labels": _LABELS}, "spec": spec}
    metadata = {"namespace": namespace, "name": "plain"}
    return _typed(
        JOBS,
        {
            "metadata": metadata,
            "spec": {"parallelism": pods, "completions": pods, "template": template},
        },
    )


async def test_a_pod_beyond_the_minimum_has_a_reason_of_its_own(
    installation: Installation, own_namespace: str, user: User
) -> None:
    """Eight pods of a Job run; the ninth waits, and its condition says why."""
    async with installation.cluster.timeline(PODS, namespace=own_namespace) as seen:
        await installation.cluster.api.create(_plain_job(own_namespace, 9, 8))
        await seen.until(_is_marked, "the scheduler has marked the ninth pod")
        (waiting,) = (it for it in pods_in(seen.state) if not it["spec"].get("nodeName"))
        of_pod = await user.why(f"pod/{waiting['metadata']['name']}", "-o", "json")
        runs = next(it for it in pods_in(seen.state) if it["spec"].get("nodeName"))
        of_other = await user.why(f"pod/{runs['metadata']['name']}", "-o", "json")
        of_job = await user.why("job/plain")

    (podgroup,) = of_pod.answer["podGroups"]
    assert (of_pod.code, of_pod.answer["queue"]) == (1, "default-queue")
    assert of_pod.answer["queueSource"] == "podGroup"
    assert podgroup["reason"]["title"] == "NoCapacity"
    assert (of_other.code, of_other.answer["node"]) == (0, runs["spec"]["nodeName"])
    assert of_job.code == 0  # its minimum of one runs
    assert "Job → 1 PodGroup → 9 pods: 8 running, 1 waiting" in of_job.out
    assert "too little free" in of_job.out


def _is_marked(state: State) -> bool:
    """Say whether eight pods run, and one has a condition that it has no node."""
    phases = [pod["status"].get("phase") for pod in pods_in(state)]
    conditions = [it for pod in pods_in(state) for it in pod["status"].get("conditions", ())]
    marks = [it for it in conditions if (it["type"], it["status"]) == ("PodScheduled", "False")]
    return phases.count("Running") == 8 and len(marks) == 1


async def test_an_object_that_does_not_exist(user: User) -> None:
    """Exit code 2, and one line."""
    output = await user.why("missing")

    assert (output.code, output.out) == (2, "")
    assert re.fullmatch(r"trainer-kai: missing: namespace .+ has no TrainJob, .+\n", output.err)
