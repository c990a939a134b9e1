"""A release of the chart on the real chain: installed, upgraded, rolled back and uninstalled.

The processes run outside the cluster, under the ServiceAccounts of the release; its Deployments
start nothing here. The tests share a chain and leave no release on it.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience_s
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, LEASES, PODS, TRAINJOBS
from e2e.cluster.timeline import Moment
from e2e.cluster.trainjobs import Submission
from e2e.conftest import failed, make_namespace
from e2e.fixtures.helm import CHART, helm, helm_program, run_helm, sets
from e2e.fixtures.install import MANIFESTS, PODGROUPS, QUEUES, documents, kubectl
from e2e.fixtures.page_commands import command_blocks, run_script
from e2e.fixtures.podgroups import finishing_pods
from e2e.fixtures.processes import (
    NAMESPACE,
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    running,
    webhook_port,
)
from e2e.fixtures.trainjobs import complete, on_nodes
from tests.support.repository import ROOT
from trainer_kai.api.names import RESERVATION_APP, TLS_SECRET

_RELEASE: Final = "trainer-kai"
_ROOM: Final = "room"
_RUNTIME: Final = "torch-distributed"
_SETTLED_S: Final = 30.0
_DEFAULT_QUEUES: Final = ("default-parent-queue", "default-queue")
_DEFINITION: Final = ("CustomResourceDefinition", "queues.scheduling.run.ai")
_LEFT: Final = {
    f"Namespace/{NAMESPACE}",
    *(f"Queue/{name}" for name in _DEFAULT_QUEUES),
    *(f"{it}/{RESERVATION_APP}" for it in ("Namespace", "ServiceAccount")),
}
_AGENT_RIGHTS: Final = ("role,rolebinding", RESERVATION_APP, "--namespace", RESERVATION_APP)

Versions = Mapping[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def helm_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Return a chain without anything of ours."""
    async with running_cluster(Options(name="test-helm")) as cluster:
        await cluster.add_nodes(2)
        yield cluster
        if failed(request.config):
            cluster.keep_logs()


async def test_a_release_from_its_installation_to_its_end(
    helm_cluster: Cluster, tmp_path: Path
) -> None:
    """Running TrainJobs notice neither upgrade nor uninstallation, and only queues are left."""
    cluster = helm_cluster
    before = await _everything(cluster)
    await _install(cluster, "snapshot=true")
    await make_namespace(cluster, _ROOM)
    await cluster.while_alive(cluster.api.until_found(f"{PODGROUPS.path()}?labelSelector=none"))
    async with cluster.timeline(TRAINJOBS, JOBSETS, PODS, namespace=_ROOM) as seen:
        async with AsyncExitStack() as stack:
            for part in (WEBHOOK, PODGROUPER, SCHEDULER):
                await stack.enter_async_context(running(cluster, part, tmp_path))
            await _submit(cluster, "runs", 4, "600s")
            await seen.until(on_nodes("runs", 4), "it runs")
            count = len(seen.history())
            await _upgrade_and_roll_back(cluster)
            await _submit(cluster, "comes", 2, "1s")
            await seen.until(complete("comes"), "another one starts and ends", 60)
            assert _disturbed(seen.history()[count:]) == []
        await helm("uninstall", _RELEASE, "--namespace", NAMESPACE, "--wait", cluster=cluster)
        assert on_nodes("runs", 4)(seen.state)
        await cluster.api.delete(TRAINJOBS, _ROOM, "runs", propagationPolicy="Foreground")

    assert await _left(cluster, before) == _LEFT


async def test_beside_objects_of_another_release(helm_cluster: Cluster) -> None:
    """Helm refuses to take them over; with the switches of the values it leaves them alone.

    It does not refuse definitions: only `--skip-crds` leaves those alone. The release is in a
    namespace of another name, and the doctor finds what belongs to it there.
    """
    cluster = helm_cluster
    await _kubectl(cluster, "create", "priorityclass", "train", "--value=50")
    kinds = ["priorityclass/train", *(f"queue.scheduling.run.ai/{it}" for it in _DEFAULT_QUEUES)]
    namespace = f"namespace/{RESERVATION_APP}"
    kinds.append(namespace)
    await _change_definition(cluster)
    owner = ("meta.helm.sh/release-name=kai", "meta.helm.sh/release-namespace=kai-scheduler")
    await _kubectl(cluster, "annotate", "--overwrite", *kinds, *owner)
    await _kubectl(cluster, "label", "--overwrite", *kinds, "app.kubernetes.io/managed-by=Helm")
    await _give_agents_their_rights(cluster)
    foreign = [await _foreign(cluster, kinds)]
    flags = ("--namespace", "gangs", "--create-namespace", "--skip-crds")
    values = sets("webhook.url=https://127.0.0.1:9443", "global.gpuSharing=true")
    off = sets("priorityClasses.create=false", "defaultQueue.createDefaultQueue=false")
    off += sets("gpuSharing.createNamespace=false")

    refused = await run_helm("install", _RELEASE, CHART, *flags, *values, cluster=cluster)
    await helm("uninstall", _RELEASE, *flags[:2], "--ignore-not-found", cluster=cluster)
    await helm("install", _RELEASE, CHART, *flags, *values, *off, cluster=cluster)
    findings = await _doctor(cluster, "gangs")
    foreign.append(await _foreign(cluster, kinds))
    await helm("uninstall", _RELEASE, *flags[:2], "--wait", cluster=cluster)
    foreign.append(await _foreign(cluster, kinds))
    changing = await run_helm("install", _RELEASE, CHART, *flags[:2], *values, cluster=cluster)
    await helm("uninstall", _RELEASE, *flags[:2], "--ignore-not-found", cluster=cluster)
    changed = await _foreign(cluster, kinds)
    await _kubectl(cluster, "delete", *kinds[:-1])
    await _kubectl(cluster, "delete", *_AGENT_RIGHTS)
    ours = (f"meta.helm.sh/release-{it}={NAMESPACE}" for it in ("name", "namespace"))
    await _kubectl(cluster, "annotate", "--overwrite", namespace, *ours)

    assert refused.status != 0
    assert 'annotation validation error: key "meta.helm.sh/release-name"' in refused.err
    assert foreign[0] == foreign[1] == foreign[2]
    assert changing.status != 0
    assert {it for it in changed if changed[it] != foreign[0][it]} == {"//".join(_DEFINITION)}
    sound = ("policies", "permissions")
    states = {it["check"]: it["state"] for it in findings if it["check"].startswith(sound)}
    assert len(states) == 5
    assert set(states.values()) == {"ok"}, findings


async def test_the_commands_of_the_installation_succeed(helm_cluster: Cluster) -> None:
    """A user can copy them in their order; nothing is left then."""
    script = "\n".join(command_blocks(ROOT / "docs" / "install.md"))

    await run_script(helm_cluster, script, helm_program().parent)


async def _install(cluster: Cluster, *values: str) -> None:
    url = f"webhook.url=https://127.0.0.1:{webhook_port(cluster)}"
    flags = ("--namespace", NAMESPACE, "--create-namespace")
    await helm("install", _RELEASE, CHART, *flags, *sets(url, *values), cluster=cluster)


async def _upgrade_and_roll_back(cluster: Cluster) -> None:
    """Change values, change nothing, and go back, while the processes write what is theirs."""
    release = ("upgrade", _RELEASE, CHART, "--namespace", NAMESPACE, "--reset-then-reuse-values")
    changed = sets("settings.log.level=debug", "queueAccess=closed")
    await _replace_certificate(cluster)
    notes = await helm(*release, *changed, cluster=cluster)
    assert "trainer-kai queue close default-queue --from-usage" in notes
    closed = await _failure_policy(cluster)
    settled = await _settled(cluster)
    await helm(*release, cluster=cluster)
    assert await _release_versions(cluster) == settled
    script = "\n".join(command_blocks(ROOT / "docs" / "autoscaling.md"))
    await run_script(cluster, script, helm_program().parent)
    values = await helm("get", "values", _RELEASE, "--namespace", NAMESPACE, cluster=cluster)
    assert "clusterAutoscaling: true" in values
    await helm("rollback", _RELEASE, "1", "--namespace", NAMESPACE, cluster=cluster)
    assert (closed, await _failure_policy(cluster)) == ("Fail", "Ignore")


async def _replace_certificate(cluster: Cluster) -> None:
    """Delete the Secret; the webhook creates it with another type than a Secret of Helm has."""
    secret = ("secret", "trainer-kai-webhook-tls", "--namespace", NAMESPACE)
    await _kubectl(cluster, "delete", *secret)
    created = "--for=jsonpath={.type}=" + TLS_SECRET
    wait = f"--timeout={patience_s(_SETTLED_S):.0f}s"
    await _kubectl(cluster, "wait", "--for=create", *secret, wait)
    await _kubectl(cluster, "wait", created, *secret, wait)


async def _failure_policy(cluster: Cluster) -> str:
    path = "-o=jsonpath={.webhooks[0].failurePolicy}"
    return await _kubectl(cluster, "get", "validatingwebhookconfiguration", "kai-trainer", path)


async def _settled(cluster: Cluster) -> Versions:
    """Return the versions of the objects once no controller writes their status."""
    deadline = time.monotonic() + patience_s(_SETTLED_S)
    versions = await _release_versions(cluster)
    while True:
        await asyncio.sleep(0.5)
        earlier, versions = versions, await _release_versions(cluster)
        if earlier == versions:
            return versions
        assert time.monotonic() < deadline, "the objects of the release change without an end"


async def _release_versions(cluster: Cluster) -> Versions:
    """Return the versions of all objects of the release, except what the processes always write.

    These are Leases, which are renewed, and the status of Queues.
    """
    manifest = await helm("get", "manifest", _RELEASE, "--namespace", NAMESPACE, cluster=cluster)
    objects = [it for it in documents(manifest) if it["kind"] not in (LEASES.kind, QUEUES.kind)]
    names: dict[str, list[str]] = {NAMESPACE: [], RESERVATION_APP: []}
    for obj in objects:
        meta = obj["metadata"]
        names[meta.get("namespace", NAMESPACE)].append(f"{obj['kind']}/{meta['name']}")
    queues = [f"queue.scheduling.run.ai/{it}" for it in _DEFAULT_QUEUES]
    return {
        **await _versions(cluster, names[NAMESPACE]),
        **await _versions(cluster, names[RESERVATION_APP], namespace=RESERVATION_APP),
        **await _versions(cluster, queues, field="generation"),
    }


async def _versions(
    cluster: Cluster, names: list[str], field: str = "resourceVersion", namespace: str = NAMESPACE
) -> Versions:
    found = await _kubectl(cluster, "get", "--namespace", namespace, *names, "-o", "json")
    return {
        f"{it['kind']}/{it['metadata'].get('namespace', '')}/{it['metadata']['name']}": str(
            it["metadata"][field]
        )
        for it in json.loads(found)["items"]
    }


async def _give_agents_their_rights(cluster: Cluster) -> None:
    """Let the account of reservation pods have the Role that KAI's release has as well."""
    agent = MANIFESTS / "base" / "gpu-sharing" / "agent.yaml"
    await _kubectl(cluster, "apply", "--server-side", "-f", str(agent))


async def _change_definition(cluster: Cluster) -> None:
    """Let the definition differ from that of the chart, as another release of Helm may leave it."""
    text = (MANIFESTS / "base" / "crds" / "queues.yaml").read_text()
    apply = ("apply", "--server-side", "--field-manager=helm", "-f", "-")
    changed = text.replace("GPU quota", "Quota")
    await kubectl("--kubeconfig", str(cluster.kubeconfig), *apply, given=changed)


async def _foreign(cluster: Cluster, kinds: list[str]) -> Versions:
    return await _versions(cluster, ["/".join(_DEFINITION), *kinds])


async def _left(cluster: Cluster, before: set[str]) -> set[str]:
    """Return what was not there before, once the garbage collector is done."""
    deadline = time.monotonic() + patience_s(_SETTLED_S)
    while (left := await _everything(cluster) - before) != _LEFT and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    return left


async def _everything(cluster: Cluster) -> set[str]:
    """Return every object but what comes and goes by itself, and what the test makes."""
    listed = await _kubectl(cluster, "api-resources", "--verbs=list,delete", "-o", "name")
    kinds = [it for it in listed.split() if it.partition(".")[0] not in _VOLATILE]
    columns = "-o=custom-columns=K:.kind,N:.metadata.name,S:.metadata.namespace"
    found = await _kubectl(
        cluster, "get", ",".join(kinds), "--all-namespaces", "--no-headers", columns
    )
    lines = [line.split() for line in found.splitlines()]
    return {f"{kind}/{name}" for kind, name, *where in lines if _ROOM not in (name, *where)}


# Definitions and the groups that they make are kept, as docs/install.md says.
_VOLATILE: Final = {
    *("events", "apiservices", "customresourcedefinitions", "endpointslices"),
    *("endpoints", "componentstatuses", "controllerrevisions"),
}


async def _doctor(cluster: Cluster, namespace: str) -> list[dict[str, str]]:
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        *(str(ROOT / ".venv" / "bin" / "python"), "-m", "trainer_kai.cli", "doctor"),
        *("-n", namespace, "-o", "json"),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    findings: list[dict[str, str]] = json.loads(output)["findings"]
    return findings


async def _kubectl(cluster: Cluster, *arguments: str) -> str:
    return await kubectl("--kubeconfig", str(cluster.kubeconfig), *arguments)


async def _submit(cluster: Cluster, name: str, nodes: int, run_for: str) -> None:
    runtime = await cluster.api.get(CLUSTER_RUNTIMES, None, _RUNTIME)
    job = Submission(name, _RUNTIME, _ROOM, nodes, 1, finishing_pods(runtime, run_for))
    await cluster.api.create(job.trainjob())


def _disturbed(moments: list[Moment]) -> list[str]:
    """Return what happened to the TrainJob that runs; its status may change."""
    return [
        f"{it.type} {it.key.resource.plural} {it.key.name}"
        for it in moments
        if "runs" in it.key.name
        and (it.type != "MODIFIED" or it.obj.get("spec", {}).get("suspend"))
    ]
