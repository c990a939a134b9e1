"""An installation in use: upgraded while TrainJobs run, and uninstalled."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.cluster.api import ApiError
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    CLUSTER_RUNTIMES,
    CRDS,
    JOBSETS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    TRAINJOBS,
    VALIDATING_WEBHOOKS,
    Obj,
    Resource,
)
from e2e.cluster.timeline import Moment, State, Timeline
from e2e.cluster.trainjobs import Submission
from e2e.conftest import make_namespace
from e2e.fixtures.install import MANIFESTS, PODGROUPS, PRIORITY_CLASSES, RULES, kubectl
from e2e.fixtures.podgroups import finishing_pods
from e2e.fixtures.processes import PODGROUPER, SCHEDULER, WEBHOOK, running, webhook_port
from e2e.fixtures.trainjobs import complete, on_nodes
from trainer_kai.api.names import TRAINER_KAI_PREFIX

_FOLLOWED: Final = (TRAINJOBS, JOBSETS, PODS)
_NAMESPACE: Final = "room"
_RUNTIME: Final = "torch-distributed"


@pytest.mark.soak  # in each run test_helm.py does the same with the chart
async def test_who_runs_notices_no_upgrade_and_no_end_of_us(tmp_path: Path) -> None:
    """Nothing of a TrainJob that runs changes, another starts meanwhile, and nothing is left.

    Applied anew are another image, more settings and a label on every object, while one process
    after the other is ended and started with other settings.
    """
    async with running_cluster(Options(name="test-life")) as cluster:
        await cluster.add_nodes(2)
        await _apply(cluster, tmp_path / "before", "0.1.0", {})
        await make_namespace(cluster, _NAMESPACE)
        # For a moment an API server answers 429 for kinds that are new to it.
        await cluster.while_alive(
            cluster.api.until_found(f"{PODGROUPS.path()}?labelSelector=nobody")
        )
        async with cluster.timeline(*_FOLLOWED, PODGROUPS, namespace=_NAMESPACE) as seen:
            await _upgrade(cluster, seen, tmp_path)
        async with cluster.timeline(*_FOLLOWED, namespace=_NAMESPACE) as seen:
            await _uninstall(cluster, seen)


async def _upgrade(cluster: Cluster, seen: Timeline, folder: Path) -> None:
    parts = (WEBHOOK, PODGROUPER, SCHEDULER)
    settings = {"TRAINER_KAI_DEFAULT_QUEUE": "default-queue"}
    async with (
        running(cluster, parts[0], folder) as webhook,
        running(cluster, parts[1], folder) as podgrouper,
        running(cluster, parts[2], folder) as scheduler,
    ):
        await _submit(cluster, "runs", 4, "600s")
        await seen.until(on_nodes("runs", 4), "it runs")
        await seen.until(lambda state: _phase(state) == "Running", "its group says so")
        before = len(seen.history())
        await _apply(cluster, folder / "after", "0.2.0", settings)
        for ours in (webhook, podgrouper, scheduler):
            await ours.stop()
            await ours.start()
        await _submit(cluster, "comes", 2, "1s")
        await seen.until(complete("comes"), "another one starts and ends", 60)
        assert _disturbed(seen.history()[before:]) == []
        assert on_nodes("runs", 4)(seen.state)


async def _uninstall(cluster: Cluster, seen: Timeline) -> None:
    """Follow the README, the processes being gone already."""
    for command in _commands("## Uninstalling"):
        arguments = command.replace("manifests/base", str(MANIFESTS / "base")).split()[1:]
        await kubectl("--kubeconfig", str(cluster.kubeconfig), *arguments)
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        left = [it["metadata"]["name"] for it in (await cluster.api.list(kind))[0]]
        assert [name for name in left if "kai" in name] == []
    for kind, name in (
        (NAMESPACES, "trainer-kai"),
        (CRDS, "podgroups.scheduling.run.ai"),
        (PRIORITY_CLASSES, "trainer-kai"),
        (RULES, "trainer-kai-jobsets"),
    ):
        assert await _is_gone(cluster, kind, name)
    for kind in (TRAINJOBS, JOBSETS, PODS):
        for obj in (await cluster.api.list(kind, _NAMESPACE))[0]:
            held = obj["metadata"].get("finalizers", [])
            assert [it for it in held if TRAINER_KAI_PREFIX in it or "kai" in it] == []
    assert on_nodes("runs", 4)(seen.state)
    await _submit(cluster, "later", 1, "1s")
    await seen.until(lambda state: len(_pods_of(state, "later")) == 1, "TrainJobs need us no more")
    [pod] = _pods_of(seen.state, "later")
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    await cluster.api.delete(TRAINJOBS, _NAMESPACE, "runs", propagationPolicy="Foreground")
    await seen.until(lambda state: not _pods_of(state, "runs"), "who ran can be deleted", 60)


async def _apply(cluster: Cluster, folder: Path, tag: str, settings: Mapping[str, str]) -> None:
    """Apply `local` with the Deployments, which start nobody here, and a tag of its own."""
    _write(folder, webhook_port(cluster), tag, settings)
    base = ("--kubeconfig", str(cluster.kubeconfig))
    await kubectl(*base, "apply", "--server-side", "-k", str(MANIFESTS / "base" / "crds"))
    names = ("podgroups.scheduling.run.ai", "queues.scheduling.run.ai", "topologies.kai.scheduler")
    crds = (f"crd/{name}" for name in names)
    await kubectl(*base, "wait", "--for=condition=Established", *crds)
    await kubectl(*base, "apply", "--server-side", "-k", str(folder))


def _write(folder: Path, port: int, tag: str, settings: Mapping[str, str]) -> None:
    """Write a kustomization as a site has its own."""
    folder.mkdir()
    manifests = os.path.relpath(MANIFESTS, folder)
    urls = [
        {
            "op": "replace",
            "path": f"/webhooks/{number}/clientConfig/url",
            "value": f"https://127.0.0.1:{port}/mutate/{what}",
        }
        for number, what in enumerate(("jobset", "jobset", "pod"))
    ]
    more = [
        {
            "op": "add",
            "path": "/spec/template/spec/containers/0/env/-",
            "value": {"name": name, "value": value},
        }
        for name, value in settings.items()
    ]
    patches = [(MUTATING_WEBHOOKS.kind, urls), *([("Deployment", more)] if more else [])]
    kustomization = {
        "resources": [f"{manifests}/overlays/local", f"{manifests}/base/processes"],
        "labels": [{"pairs": {"app.kubernetes.io/version": tag}}],
        "images": [{"name": "trainer-kai", "newName": "example.com/x", "newTag": tag}],
        "patches": [
            {"target": {"kind": kind}, "patch": yaml.safe_dump(patch)} for kind, patch in patches
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))


async def _submit(cluster: Cluster, name: str, nodes: int, run_for: str) -> None:
    installed_cluster = await cluster.api.get(CLUSTER_RUNTIMES, None, _RUNTIME)
    job = Submission(
        name, _RUNTIME, _NAMESPACE, nodes, 1, finishing_pods(installed_cluster, run_for)
    )
    await cluster.api.create(job.trainjob())


def _disturbed(moments: list[Moment]) -> list[str]:
    """Return what happened to the TrainJob that runs, or to anything of it; its status may move."""
    return [
        f"{it.type} {it.key.resource.plural} {it.key.name}"
        for it in moments
        if "runs" in it.key.name and it.type != "MODIFIED"
    ] + [
        f"suspended {it.key.name}"
        for it in moments
        if it.key.name == "runs" and it.obj["spec"].get("suspend")
    ]


def _commands(heading: str) -> list[str]:
    """Return the kubectl commands of a section of the README."""
    text = (MANIFESTS / "README.md").read_text()
    section = text.partition(heading)[2].partition("\n## ")[0]
    blocks = section.split("```")[1::2]
    return [line for block in blocks for line in block.splitlines() if line.startswith("kubectl")]


async def _is_gone(cluster: Cluster, kind: Resource, name: str) -> bool:
    try:
        await cluster.api.get(kind, None, name)
    except ApiError as error:
        return error.status == 404
    return False


def _phase(state: State) -> str:
    found = [it for key, it in state.items() if key.resource == PODS and "runs" in key.name]
    return "Running" if all(it["status"].get("phase") == "Running" for it in found) else ""


def _pods_of(state: State, name: str) -> list[Obj]:
    label = "jobset.sigs.k8s.io/jobset-name"
    pods = [it for key, it in state.items() if key.resource == PODS]
    return [it for it in pods if it["metadata"].get("labels", {}).get(label) == name]
