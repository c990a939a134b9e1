"""Queues as KAI's guides make them: open on a default install, closed for tenants.

A refusal has the command that grants what is missing, and that very command is run.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import pytest_asyncio

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.patience import patience, until
from e2e.cluster.resources import CLUSTER_RUNTIMES, EVENTS, VALIDATING_WEBHOOKS, Obj
from e2e.cluster.trainjobs import Submission
from e2e.conftest import failed, make_namespace
from e2e.fixtures.api_user import ApiAnswer, ApiUser, api_user
from e2e.fixtures.install import DEPLOYMENTS, MANIFESTS, QUEUES, apply, build, install, with_port
from e2e.fixtures.podgroups import QUEUE, finishing_pods
from e2e.fixtures.processes import PODGROUPER, SCHEDULER, WEBHOOK, running, webhook_port
from e2e.fixtures.trainjobs import WATCHED, bare_pod, has_node, on_nodes
from tests.support.repository import ROOT

_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_GUIDES: Final = {"test": "default", "prod-queue": "production"}  # queue → namespace
_RUNTIME: Final = "torch-distributed"
_COMMAND: Final = re.compile(r"trainer-kai (queue allow [-\w :]+\w)")
_BOT: Final = "system:serviceaccount:{}:bot"
_SOON_S: Final = 40.0
_LONG_ENOUGH_S: Final = 3.0  # for a plan, and for a second Warning


class GuideInstallation(NamedTuple):
    """A chain with our manifests and no process of ours yet; and a folder for their logs."""

    cluster: Cluster
    folder: Path

    async def run(self, command: str) -> str:
        """Run `trainer-kai` as the administrator; return what it says, on either stream."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trainer_kai.cli", *shlex.split(command)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "KUBECONFIG": str(self.cluster.kubeconfig),
            },
        )
        output = (await process.communicate())[0].decode()
        print(f"$ trainer-kai {command}\n{output}")
        assert process.returncode == 0, output
        return output

    async def warned(self, namespace: str) -> list[str]:
        """Return the Warnings in a namespace, each as often as it was said."""
        events, _ = await self.cluster.api.list(EVENTS, namespace)
        return [
            f"{it['reason']}: {it['note']}"
            for it in events
            if it["type"] == "Warning"
            for _ in range(it.get("series", {}).get("count", 1))
        ]

    async def until_on_node(self, namespace: str, name: str) -> None:
        """Wait until the pod of a TrainJob runs, or a pod of that name has a node."""
        async with self.cluster.timeline(*WATCHED, namespace=namespace) as seen:
            await seen.until(
                lambda state: on_nodes(name, 1)(state) or has_node(name)(state),
                f"{name} runs in {namespace}",
                _SOON_S,
            )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guide_installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GuideInstallation]:
    """Return the chain, with the queues and namespaces of the guides: nothing is annotated."""
    async with running_cluster(Options(name="test-tenants")) as cluster:
        await cluster.add_nodes(2, NodeShape(gpus=8))
        await install(cluster, port=webhook_port(cluster))
        for name, parent in (("default", ""), ("test", "default"), ("prod-queue", "default")):
            await apply(cluster, _queue(name, parent))
        await make_namespace(cluster, "production")
        yield GuideInstallation(cluster, tmp_path_factory.mktemp("tenants"))
        if failed(request.config):
            cluster.keep_logs()


async def test_the_guides_run_unmodified_with_one_warning_each(
    guide_installation: GuideInstallation,
) -> None:
    """The Warning names the command that closes the queue, and no other one comes."""
    async with _processes(guide_installation):
        for queue, namespace in _GUIDES.items():
            async with api_user(guide_installation.cluster, "ann", namespace) as ann:
                for name in ("first", "second"):
                    answer = await _submit(guide_installation, ann, namespace, name, queue)
                    assert (answer.status, answer.warnings) == (201, [])
                    await guide_installation.until_on_node(namespace, name)

        async def all_are_warned() -> bool:
            return all([await guide_installation.warned(it) for it in _GUIDES.values()])

        await until(all_are_warned, "each namespace has a Warning")
        await asyncio.sleep(_LONG_ENOUGH_S)
        for queue, namespace in _GUIDES.items():
            [warning] = await guide_installation.warned(namespace)
            print(warning)
            assert warning.startswith(f"QueueOpen: Queue {queue} admits pods of every namespace")
            assert f"trainer-kai queue close {queue} --from-usage" in warning


async def test_a_queue_in_use_is_closed_and_its_users_go_on(
    guide_installation: GuideInstallation,
) -> None:
    """Two namespaces have work in it: what runs goes on, and more of theirs starts; no third."""
    cluster, teams = guide_installation.cluster, ("red", "blue")
    await apply(cluster, _queue("shared", "default"))
    for namespace in (*teams, "grey"):
        await make_namespace(cluster, namespace)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_processes(guide_installation))
        bots = {
            it: await stack.enter_async_context(
                api_user(cluster, f"system:serviceaccount:{it}:bot", it)
            )
            for it in (*teams, "grey")
        }
        for it in teams:
            assert (
                await _submit(guide_installation, bots[it], it, "before", "shared")
            ).status == 201
            await guide_installation.until_on_node(it, "before")

        output = await guide_installation.run("queue close shared --from-usage")

        assert [
            f"RoleBinding {it}/trainer-kai-use-shared" in output for it in (*teams, "grey")
        ] == [*(True, True, False)]
        await _until_closed(guide_installation, bots["grey"], "grey")
        await cluster.api.create(bare_pod("grey", "pod", "shared", 1))
        for it in teams:
            assert (
                await _submit(guide_installation, bots[it], it, "after", "shared")
            ).status == 201
            await guide_installation.until_on_node(it, "after")
            await guide_installation.until_on_node(it, "before")
        async with cluster.timeline(*WATCHED, namespace="grey") as seen:
            await asyncio.sleep(_LONG_ENOUGH_S)
            assert not has_node("pod")(seen.state)
        await guide_installation.run("queue allow shared -n grey")
        await guide_installation.until_on_node("grey", "pod")


async def test_for_tenants_the_guides_are_refused_until_the_command_is_run(
    guide_installation: GuideInstallation,
) -> None:
    """The refusal names user, namespace and queue; after its command the TrainJob runs."""
    settings = await _profile(guide_installation.cluster)
    async with _processes(guide_installation, settings):
        for queue, namespace in _GUIDES.items():
            async with api_user(guide_installation.cluster, "ann", namespace) as ann:
                refused = await _submit(guide_installation, ann, namespace, "third", queue)
                print(refused.message)
                assert refused.status == 403
                for word in ("'ann'", f"{queue}", f"{namespace}"):
                    assert word in refused.message
                commands = set(_COMMAND.findall(refused.message))
                assert commands == {f"queue allow {queue} -n {namespace} --user ann"}
                await guide_installation.run(commands.pop())
                async with patience(_SOON_S):
                    while (
                        await _submit(guide_installation, ann, namespace, "third", queue)
                    ).status != 201:
                        await asyncio.sleep(0.2)
                await guide_installation.until_on_node(namespace, "third")
                await guide_installation.until_on_node(namespace, "first")


@asynccontextmanager
async def _processes(
    guide_installation: GuideInstallation, settings: Mapping[str, Mapping[str, str]] | None = None
) -> AsyncIterator[None]:
    """Run our processes, each with what an overlay tells it."""
    async with AsyncExitStack() as stack:
        for part in (WEBHOOK, PODGROUPER, SCHEDULER):
            environment = (settings or {}).get(part.name, {})
            await stack.enter_async_context(
                running(guide_installation.cluster, part, guide_installation.folder, environment)
            )
        yield


async def _profile(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Apply what `multi-tenant` changes; return what it tells the processes by their names."""
    before = await build(MANIFESTS / "overlays" / "default")
    strict = [it for it in await build(MANIFESTS / "overlays" / "multi-tenant") if it not in before]
    for obj in strict:
        if obj["kind"] in (QUEUES.kind, VALIDATING_WEBHOOKS.kind):
            await apply(cluster, with_port(obj, webhook_port(cluster)))
    chosen = {}
    for obj in strict:
        if obj["kind"] == DEPLOYMENTS.kind:
            [container] = obj["spec"]["template"]["spec"]["containers"]
            environment = {it["name"]: it["value"] for it in container["env"] if "value" in it}
            wanted = ("TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED", "TRAINER_KAI_ADMISSION_UNKNOWN_QUEUE")
            name = obj["metadata"]["name"].removeprefix("trainer-kai-")
            chosen[name] = {it: environment[it] for it in wanted if it in environment}
    assert chosen.keys() == {"webhook", "scheduler"}
    return chosen


async def _submit(
    guide_installation: GuideInstallation, who: ApiUser, namespace: str, name: str, queue: str
) -> ApiAnswer:
    """Create a TrainJob of one pod, once the API server has heard that its user may."""
    installed = await guide_installation.cluster.api.get(CLUSTER_RUNTIMES, None, _RUNTIME)
    patches = finishing_pods(installed, "600s")
    given = Submission(name, _RUNTIME, namespace, 1, 1, patches, labels={QUEUE: queue})
    async with patience(_SOON_S):
        while True:
            answer = await who.create(given.trainjob(), dry=False)
            if not (answer.status == 403 and "cannot create resource" in answer.message):
                return answer
            await asyncio.sleep(0.1)


async def _until_closed(
    guide_installation: GuideInstallation, who: ApiUser, namespace: str
) -> None:
    """Wait until the webhook has heard that a queue is closed; the refusal has the command."""
    async with patience(_SOON_S):
        while (
            answer := await _submit(guide_installation, who, namespace, "late", "shared")
        ).status == 201:
            await guide_installation.cluster.api.request(
                "DELETE",
                f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/late",
            )
            await asyncio.sleep(0.2)
    print(answer.message)
    assert answer.status == 403
    assert f"trainer-kai queue allow shared -n {namespace}" in answer.message


def _queue(name: str, parent: str) -> Obj:
    """Return a queue as the guides have it: without bounds, and without a word on its users."""
    spec: Obj = {"resources": dict.fromkeys(("cpu", "gpu", "memory"), _FREE)}
    if parent:
        spec["parentQueue"] = parent
    kind = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind}
    return {**kind, "metadata": {"name": name}, "spec": spec}
