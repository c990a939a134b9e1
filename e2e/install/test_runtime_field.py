"""The queue as a field of a runtime: dropped without the patch of Trainer's CRDs, kept with it."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Final

from e2e.cluster.binaries import ensure_built
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import CLUSTER_RUNTIMES, CRDS, RUNTIMES, Obj, Resource
from e2e.fixtures.install import MANIFESTS, CommandResult, build, run_kubectl

PATCH: Final = MANIFESTS / "components" / "runtime-queue-field" / "patch.yaml"
UNKNOWN: Final = 'unknown field "spec.podGroupPolicy.kaiScheduler"'
KINDS: Final = (RUNTIMES, CLUSTER_RUNTIMES)


def runtime(resource: Resource, queue: str, name: str = "with-queue") -> Obj:
    """Return a runtime that names its queue."""
    metadata = {"name": name, **({"namespace": "default"} if resource.namespaced else {})}
    pod = {"containers": [{"name": "node", "image": "example.com/train"}]}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": pod}},
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": {
            "podGroupPolicy": {"kaiScheduler": {"queue": queue}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }


async def test_the_queue_of_a_runtime(own_cluster: Cluster) -> None:
    """One chain, before and after the commands of the README; the second time they do nothing."""
    cluster = own_cluster
    for resource in KINDS:
        await _is_dropped(cluster, resource)

    before = [await _definition(cluster, resource) for resource in KINDS]
    output = [await _patch(cluster, resource) for resource in (*KINDS, *KINDS)]

    assert [ran.status for ran in output] == [0] * 4
    assert [ran.out.endswith("patched (no change)\n") for ran in output] == [False] * 2 + [True] * 2
    for resource, definition in zip(KINDS, before, strict=True):
        await _is_added(cluster, resource, definition)
        await _is_kept(cluster, resource)


async def _is_dropped(cluster: Cluster, resource: Resource) -> None:
    """Strict refuses, Warn warns, Ignore says nothing."""
    strict = await _create(cluster, runtime(resource, "team-a"), "strict")
    assert strict.status
    assert UNKNOWN in strict.err
    for validation, warning in (("warn", f"Warning: {UNKNOWN}\n"), ("ignore", "")):
        ran = await _create(cluster, runtime(resource, "team-a", validation), validation)
        assert ran.err == warning
        assert json.loads(ran.out)["spec"]["podGroupPolicy"] == {}


async def _is_added(cluster: Cluster, resource: Resource, before: Obj) -> None:
    """Nothing else of the definition is changed."""
    after = await _definition(cluster, resource)
    properties = _policies(after)
    del properties["kaiScheduler"]
    assert after == before


async def _is_kept(cluster: Cluster, resource: Resource) -> None:
    async with patience(20):  # until the API server serves the changed definition
        while (ran := await _create(cluster, runtime(resource, "team-a"), "strict")).status:
            await asyncio.sleep(0.1)
    assert json.loads(ran.out)["spec"]["podGroupPolicy"] == {"kaiScheduler": {"queue": "team-a"}}
    for queue in ("Team_A", "-a", "a" * 64, ""):
        refused = await _create(cluster, runtime(resource, queue, "refused"), "strict")
        assert "spec.podGroupPolicy.kaiScheduler.queue" in refused.err


async def _create(cluster: Cluster, obj: Obj, validation: str) -> CommandResult:
    return await run_kubectl(
        *("--kubeconfig", str(cluster.kubeconfig), "create", "-f", "-", "-o", "json"),
        f"--validate={validation}",
        given=json.dumps(obj),
    )


async def _patch(cluster: Cluster, resource: Resource) -> CommandResult:
    name = f"{resource.plural}.{resource.group}"
    return await run_kubectl(
        *("--kubeconfig", str(cluster.kubeconfig), "patch", "crd", name, "--type=json"),
        *("--patch-file", str(PATCH)),
    )


async def _definition(cluster: Cluster, resource: Resource) -> Obj:
    found = await cluster.api.get(CRDS, None, f"{resource.plural}.{resource.group}")
    spec: Obj = found["spec"]
    return spec


def _policies(definition: Obj) -> Obj:
    schema = definition["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found: Obj = schema["properties"]["podGroupPolicy"]["properties"]
    return found


async def test_the_patch_as_a_component(tmp_path: Path) -> None:
    """Over Trainer's own definitions it adds the field to both kinds of runtime only."""
    definitions = [json.dumps(crd) for crd in ensure_built().catalog().crds]
    (tmp_path / "crds.yaml").write_text("\n---\n".join(definitions))
    shutil.copytree(PATCH.parent, tmp_path / "field")  # kustomize knows paths within a tree
    kustomization = {"resources": ["crds.yaml"], "components": ["field"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))

    built = await build(tmp_path)

    named = {crd["metadata"]["name"] for crd in built if "kaiScheduler" in json.dumps(crd)}
    assert named == {f"{resource.plural}.{resource.group}" for resource in KINDS}
