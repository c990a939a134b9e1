"""The commands of the README, given by hand to the real kubectl."""

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    CRDS,
    JOBSETS,
    MUTATING_WEBHOOKS,
    TRAINJOBS,
    VALIDATING_WEBHOOKS,
    Obj,
)
from e2e.fixtures.install import (
    BUDGETS,
    DEPLOYMENTS,
    MANIFESTS,
    RULES,
    build,
    documents,
    kubectl,
    resource_of,
    run_kubectl,
)

_BUNDLE = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"
OVERLAYS: Final = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())
# What cert-manager defines, as far as we use it; whatever else is said of them is refused.
_ISSUER: Final = {
    "selfSigned": {"type": "object"},
    "ca": {"type": "object", "properties": {"secretName": {"type": "string"}}},
}
_TEXT: Final = {"type": "string"}
_CERTIFICATE: Final = {
    "secretName": _TEXT,
    "isCA": {"type": "boolean"},
    "commonName": _TEXT,
    "duration": {**_TEXT, "format": "duration"},
    "privateKey": {
        "type": "object",
        "properties": {
            "algorithm": {**_TEXT, "enum": ["RSA", "ECDSA", "Ed25519"]},
            "size": {"type": "integer"},
            "rotationPolicy": {**_TEXT, "enum": ["Never", "Always"]},
        },
    },
    "dnsNames": {"type": "array", "items": _TEXT},
    "issuerRef": {
        "type": "object",
        "required": ["name"],
        "properties": {"kind": _TEXT, "name": _TEXT, "group": _TEXT},
    },
}


# What stands between other tests of the same cluster and its API server.
_ADMISSION: Final = (
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,"
    "validatingadmissionpolicybindings"
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def admission_removed(_damaged_cluster: Cluster) -> AsyncIterator[None]:
    """Take our admission out of the cluster afterwards: no webhook of ours runs there."""
    yield
    kubeconfig = ("--kubeconfig", str(_damaged_cluster.kubeconfig))
    ours = ("-l", "app.kubernetes.io/part-of=trainer-kai")
    removed = await run_kubectl(*kubeconfig, "delete", _ADMISSION, *ours)
    assert removed.status == 0, removed.err


@pytest.mark.usefixtures("admission_removed")
@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_applying_an_overlay_twice_is_applying_it_once(
    overlay: str, damaged_cluster: Cluster
) -> None:
    """Nothing is warned of, nothing differs afterwards, nothing is written the second time."""
    cluster = damaged_cluster
    await _define(cluster)
    if overlay == "cert-manager":
        await _define_cert_manager(cluster)
    objects = await build(MANIFESTS / "overlays" / overlay)
    kubeconfig = ("--kubeconfig", str(cluster.kubeconfig))
    folder = ("-k", str(MANIFESTS / "overlays" / overlay))

    apply = (*kubeconfig, "apply", "--server-side", "--validate=strict", *folder)

    first = await run_kubectl(*apply)
    before = await _versions(cluster, objects)
    again = await run_kubectl(*apply)
    compared = await run_kubectl(*kubeconfig, "diff", "--server-side", *folder)

    for ran in (first, again):
        assert (ran.status, ran.err) == (0, "")
        assert len(ran.out.splitlines()) == len(objects)
    assert await _versions(cluster, objects) == before
    assert compared == (0, "", "")


@pytest.mark.usefixtures("admission_removed")
async def test_what_the_process_wrote_stays(damaged_cluster: Cluster) -> None:
    """Whom to trust is no part of what is applied."""
    cluster = damaged_cluster
    await _define(cluster)
    await _apply(cluster, "overlays/default")
    objects = await build(MANIFESTS / "overlays" / "default")
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        webhooks = (await cluster.api.get(kind, None, "kai-trainer"))["webhooks"]
        patch = [
            {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": _BUNDLE}
            for i in range(len(webhooks))
        ]
        path = kind.path(None, "kai-trainer")
        await cluster.api.request("PATCH", path, patch, content_type="application/json-patch+json")
    before = await _versions(cluster, objects)

    await _apply(cluster, "overlays/default")

    assert await _versions(cluster, objects) == before
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        webhooks = (await cluster.api.get(kind, None, "kai-trainer"))["webhooks"]
        assert {webhook["clientConfig"]["caBundle"] for webhook in webhooks} == {_BUNDLE}


async def test_the_examples_apply_as_they_are(own_cluster: Cluster) -> None:
    """Strictly, to a chain with our definitions; and Trainer makes a JobSet of every TrainJob."""
    cluster = own_cluster
    await _define(cluster)

    await _apply(cluster, "examples")
    await _apply(cluster, "examples/gpu-sharing")
    again = await _apply(cluster, "examples")

    [listed] = documents(again)
    jobs = [obj["metadata"] for obj in listed["items"] if obj["kind"] == TRAINJOBS.kind]
    assert {job["name"] for job in jobs} == {"torch", "torch-by-runtime", "deepspeed", "torchtune"}
    for job in jobs:
        await cluster.while_alive(cluster.until_found(JOBSETS, job["namespace"], job["name"]))
    await cluster.while_alive(cluster.until_found(JOBSETS, "default", "torch-halves"))
    made = await cluster.api.get(JOBSETS, "default", "torch-by-runtime")
    assert made["metadata"]["labels"]["kai.scheduler/queue"] == "team-a"


async def _define_cert_manager(cluster: Cluster) -> None:
    for kind, fields in (("Issuer", _ISSUER), ("Certificate", _CERTIFICATE)):
        plural = f"{kind.lower()}s"
        properties = {"spec": {"type": "object", "properties": fields}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
        crd = {
            "apiVersion": CRDS.api_version,
            "kind": CRDS.kind,
            "metadata": {"name": f"{plural}.cert-manager.io"},
            "spec": {
                "group": "cert-manager.io",
                "names": {"kind": kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }
        await cluster.api.create(crd)
        await cluster.while_alive(cluster.api.until_found(f"/apis/cert-manager.io/v1/{plural}"))


async def _define(cluster: Cluster) -> None:
    await _apply(cluster, "base/crds")
    names = ("podgroups.scheduling.run.ai", "queues.scheduling.run.ai", "topologies.kai.scheduler")
    await _run(cluster, "wait", "--for=condition=Established", *(f"crd/{name}" for name in names))


async def _apply(cluster: Cluster, folder: str) -> str:
    return await _run(
        cluster,
        "apply",
        "--server-side",
        "--validate=strict",
        "-o",
        "yaml",
        "-k",
        str(MANIFESTS / folder),
    )


async def _run(cluster: Cluster, *arguments: str) -> str:
    return await kubectl("--kubeconfig", str(cluster.kubeconfig), *arguments)


async def _versions(cluster: Cluster, objects: list[Obj]) -> list[str]:
    found = [
        await cluster.api.get(
            resource_of(obj), obj["metadata"].get("namespace"), obj["metadata"]["name"]
        )
        for obj in objects
    ]
    return [_written(obj) for obj in found]


def _written(obj: Obj) -> str:
    """Return what changes when somebody writes an object; not when a controller writes a status."""
    judged = (DEPLOYMENTS.kind, BUDGETS.kind, RULES.kind)
    field = "generation" if obj["kind"] in judged else "resourceVersion"
    return str(obj["metadata"][field])
