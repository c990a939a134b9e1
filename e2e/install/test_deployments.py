"""The Deployments on a real API server: taken as they are, and their pods let in."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.cluster.api import ApiError, retry_while_stale
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import PODS, Obj
from e2e.fixtures.install import BUDGETS, DEPLOYMENTS, MANIFESTS, PRIORITY_CLASSES, apply, build
from trainer_kai.service.config import load
from trainer_kai.service.settings import PROCESSES

OVERLAYS: Final = ("default", "external-kai", "opt-in", "cert-manager", "multi-tenant")
_OF_KAI: Final = 125  # the highest of its classes
EXTERNAL: Final = "external-kai"
ASKS: Final = ("queue_access.unannotated", "admission.unknown_queue", "tls.source")
ACCESS_SETTINGS: Final = ("open", "warn", "self-managed")
# what of ASKS each process that has such a setting is told
CHOSEN: Final = {
    "default": {"webhook": ACCESS_SETTINGS, "scheduler": ("open",)},
    "external-kai": {"webhook": ACCESS_SETTINGS},
    "opt-in": {"webhook": ACCESS_SETTINGS, "scheduler": ("open",)},
    "cert-manager": {"webhook": ("open", "warn", "cert-manager"), "scheduler": ("open",)},
    "multi-tenant": {"webhook": ("closed", "deny", "self-managed"), "scheduler": ("closed",)},
}


async def of_kind(overlay: str, *kinds: str) -> list[Obj]:
    """Return the objects of some kinds in an overlay."""
    objects = await build(MANIFESTS / "overlays" / overlay)
    return [obj for obj in objects if obj["kind"] in kinds]


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_an_api_server_takes_them(overlay: str, installed_cluster: Cluster) -> None:
    """Strictly: no field is misspelt, and none is there twice."""
    objects = await of_kind(overlay, DEPLOYMENTS.kind, BUDGETS.kind)

    assert len(objects) == 2 * len([obj for obj in objects if obj["kind"] == DEPLOYMENTS.kind])
    for obj in objects:
        taken = await apply(installed_cluster, obj, dryRun="All")
        assert taken["metadata"]["name"] == obj["metadata"]["name"]


async def test_their_pods_are_let_into_a_restricted_namespace(installed_cluster: Cluster) -> None:
    """As ours is; without what they say about security they would not be."""
    deployments = await of_kind("default", DEPLOYMENTS.kind)
    [own_class] = [
        it for it in await of_kind("default", PRIORITY_CLASSES.kind) if it["value"] > _OF_KAI
    ]
    await apply(installed_cluster, own_class)
    first = _pod(deployments[0])
    await retry_while_stale(lambda: _try(installed_cluster, first), "no PriorityClass")

    assert len(deployments) == len(PROCESSES)
    for deployment in deployments:
        pod = _pod(deployment)
        made = await _try(installed_cluster, pod)
        assert made["metadata"]["namespace"] == "trainer-kai"
        assert made["spec"]["priority"] == own_class["value"]
        for lax in _laxer(pod):
            with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
                await _try(installed_cluster, lax)


async def test_the_way_back_from_cert_manager_is_to_apply_without_it(
    installed_cluster: Cluster,
) -> None:
    """What it had added is taken away again, and the webhook may write its Secret."""
    kinds, found = (DEPLOYMENTS.kind, "Role"), []
    for overlay in ("default", "cert-manager", "default"):
        objects = await of_kind(overlay, *kinds)
        ours = [it for it in objects if it["metadata"]["name"] == "trainer-kai-webhook"]
        found.append([(await apply(installed_cluster, it)) for it in ours])
    await installed_cluster.api.delete(DEPLOYMENTS, "trainer-kai", "trainer-kai-webhook")
    output = [
        {
            it["kind"]: it.get("rules") or it["spec"]["template"]["spec"]["containers"][0]["env"]
            for it in made
        }
        for made in found
    ]

    before, meanwhile, after = output
    assert before.keys() == set(kinds)
    assert all(before[kind] != meanwhile[kind] for kind in kinds)
    assert before == after


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_all_processes_get_the_same_mode(overlay: str) -> None:
    """Beside a KAI another one than without, and there is no scheduler there."""
    found = {name: it.mode for name, it in (await _settings(overlay)).items()}

    external = {"scheduler"} if overlay == EXTERNAL else set()
    mode = "external" if external else "bundled"
    assert found == dict.fromkeys(PROCESSES.keys() - external, mode)


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_what_an_overlay_chooses_is_what_processes_read(overlay: str) -> None:
    """Queues that are closed are so at both doors."""
    settings = await _settings(overlay)
    found = {name: tuple(_environment(it)) for name, it in settings.items()}

    assert {name: output for name, output in found.items() if output} == CHOSEN[overlay]


async def test_components_add_to_any_overlay(tmp_path: Path, installed_cluster: Cluster) -> None:
    """Replicas never share a node, and two nodes are enough; the scheduler shows a snapshot."""
    _write_kustomization(tmp_path, "spread-replicas", "snapshot")
    objects = await build(tmp_path)
    deployments = [it for it in objects if it["kind"] == DEPLOYMENTS.kind]
    settings = _settings_of(deployments)

    for deployment in deployments:
        taken = (await apply(installed_cluster, deployment, dryRun="All"))["spec"]
        [[apart]] = taken["template"]["spec"]["affinity"]["podAntiAffinity"].values()
        assert apart["topologyKey"] == "kubernetes.io/hostname"
        assert apart["labelSelector"] == taken["selector"]
        assert taken["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    shown = {name: it.health.snapshot for name, it in settings.items()}
    assert shown == {**dict.fromkeys(PROCESSES, "off"), "scheduler": "authorized"}


def _write_kustomization(folder: Path, *components: str) -> None:
    """Write what an installation has that adds components to the default."""
    parts = ["overlays/default", *(f"components/{it}" for it in components)]
    first, *more = (os.path.relpath(MANIFESTS.resolve() / it, folder.resolve()) for it in parts)
    text = json.dumps({"resources": [first], "components": more})
    (folder / "kustomization.yaml").write_text(text)


async def _settings(overlay: str) -> dict[str, Any]:
    """Return what each process of an overlay reads of what it is told."""
    return _settings_of(await of_kind(overlay, DEPLOYMENTS.kind))


def _settings_of(deployments: list[Obj]) -> dict[str, Any]:
    found = {}
    for deployment in deployments:
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        environ = {it["name"]: it["value"] for it in container.get("env", ()) if "value" in it}
        name = deployment["metadata"]["name"].removeprefix("trainer-kai-")
        found[name] = load(PROCESSES[name], container["command"][3:], environ)
    return found


def _environment(settings: Any) -> Iterator[str]:
    """Yield those of ASKS that there are."""
    for path in ASKS:
        value = settings
        for part in path.split("."):
            value = getattr(value, part, None)
        if value is not None:
            yield value


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_an_overlay_names_the_image(overlay: str) -> None:
    """With a tag, which is written in one place."""
    images = {
        container["image"]
        for deployment in await of_kind(overlay, DEPLOYMENTS.kind)
        for container in deployment["spec"]["template"]["spec"]["containers"]
    }

    [image] = images
    assert image.startswith("trainer-kai:")


def _pod(deployment: Obj) -> Obj:
    """Return the pod that a Deployment would make."""
    template = copy.deepcopy(deployment["spec"]["template"])
    metadata = {**deployment["metadata"], "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": PODS.kind, "metadata": metadata, "spec": template["spec"]}


def _laxer(pod: Obj) -> list[Obj]:
    """Return the pod without one half of what it says about security, and without the other."""
    of_pod, of_container = copy.deepcopy(pod), copy.deepcopy(pod)
    del of_pod["spec"]["securityContext"]
    del of_container["spec"]["containers"][0]["securityContext"]
    return [of_pod, of_container]


async def _try(cluster: Cluster, pod: Obj) -> Obj:
    path = PODS.path(pod["metadata"]["namespace"])
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    made: Obj = await cluster.api.request("POST", path, pod, query=query)
    return made
