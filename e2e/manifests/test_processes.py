"""The Deployments on a real API server: taken as they are, and their pods let in."""

import copy
from typing import Final

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import PODS, Obj
from e2e.front.install import BUDGETS, DEPLOYMENTS, MANIFESTS, apply, build
from trainer_kai.config import load
from trainer_kai.settings import PROCESSES

OVERLAYS: Final = ("default", "external-kai", "opt-in")
MODES: Final = {"default": "bundled", "external-kai": "external", "opt-in": "bundled"}


async def of_kind(overlay: str, *kinds: str) -> list[Obj]:
    """Return the objects of some kinds in an overlay."""
    objects = await build(MANIFESTS / "overlays" / overlay)
    return [obj for obj in objects if obj["kind"] in kinds]


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_an_api_server_takes_them(overlay: str, installed: Cluster) -> None:
    """Strictly: no field is misspelt, and none is there twice."""
    objects = await of_kind(overlay, DEPLOYMENTS.kind, BUDGETS.kind)

    assert len(objects) == 2 * len([obj for obj in objects if obj["kind"] == DEPLOYMENTS.kind])
    for obj in objects:
        taken = await apply(installed, obj, dryRun="All")
        assert taken["metadata"]["name"] == obj["metadata"]["name"]


async def test_their_pods_are_let_into_a_restricted_namespace(installed: Cluster) -> None:
    """As ours is; without what they say about security they would not be."""
    deployments = await of_kind("default", DEPLOYMENTS.kind)

    assert len(deployments) == len(PROCESSES)
    for deployment in deployments:
        pod = _pod(deployment)
        made = await _try(installed, pod)
        assert made["metadata"]["namespace"] == "trainer-kai"
        for lax in _laxer(pod):
            with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
                await _try(installed, lax)


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_all_processes_are_told_the_same_mode(overlay: str) -> None:
    """Beside a KAI another one than without, and there is no scheduler there."""
    found = {}
    for deployment in await of_kind(overlay, DEPLOYMENTS.kind):
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        environ = {it["name"]: it["value"] for it in container.get("env", ())}
        name = deployment["metadata"]["name"].removeprefix("trainer-kai-")
        found[name] = load(PROCESSES[name], container["command"][3:], environ).mode

    external = {"scheduler"} if MODES[overlay] == "external" else set()
    assert found == dict.fromkeys(PROCESSES.keys() - external, MODES[overlay])


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
