"""The commands of the README, given by hand to the real kubectl."""

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import (
    JOBSETS,
    MUTATING_WEBHOOKS,
    TRAINJOBS,
    VALIDATING_WEBHOOKS,
    Obj,
)
from e2e.front.install import (
    BUDGETS,
    DEPLOYMENTS,
    MANIFESTS,
    build,
    documents,
    kubectl,
    resource_of,
)

_BUNDLE = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"


async def test_installing_twice_is_installing_once(own_cluster: Cluster) -> None:
    """Nothing is written again, and what the process wrote into its webhooks stays."""
    cluster = own_cluster
    await _define(cluster)
    await _apply(cluster, "overlays/default")
    objects = await build(MANIFESTS / "overlays" / "default")
    for kind, number in ((MUTATING_WEBHOOKS, 3), (VALIDATING_WEBHOOKS, 2)):
        patch = [
            {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": _BUNDLE}
            for i in range(number)
        ]
        path = kind.path(None, "kai-trainer")
        await cluster.api.request("PATCH", path, patch, content_type="application/json-patch+json")
    before = await _versions(cluster, objects)

    await _apply(cluster, "overlays/default")

    assert await _versions(cluster, objects) == before
    for kind, number in ((MUTATING_WEBHOOKS, 3), (VALIDATING_WEBHOOKS, 2)):
        webhooks = (await cluster.api.get(kind, None, "kai-trainer"))["webhooks"]
        bundles = [webhook["clientConfig"]["caBundle"] for webhook in webhooks]
        assert bundles == [_BUNDLE] * number


async def test_the_examples_apply_as_they_are(own_cluster: Cluster) -> None:
    """Strictly, to a chain with our definitions; and Trainer makes a JobSet of every TrainJob."""
    cluster = own_cluster
    await _define(cluster)

    await _apply(cluster, "examples")
    again = await _apply(cluster, "examples")

    [listed] = documents(again)
    jobs = [obj["metadata"] for obj in listed["items"] if obj["kind"] == TRAINJOBS.kind]
    assert {job["name"] for job in jobs} == {"torch", "torch-by-runtime", "deepspeed", "torchtune"}
    for job in jobs:
        await cluster.guarded(cluster.until_found(JOBSETS, job["namespace"], job["name"]))
    made = await cluster.api.get(JOBSETS, "default", "torch-by-runtime")
    assert made["metadata"]["labels"]["kai.scheduler/queue"] == "team-a"


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
    field = "generation" if obj["kind"] in (DEPLOYMENTS.kind, BUDGETS.kind) else "resourceVersion"
    return str(obj["metadata"][field])
