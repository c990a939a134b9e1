"""Pods of other kinds: their PodGroups by real owner chains, with and without the right to read."""

from typing import Final

from e2e.admission_grouping.test_jobs import KAI, assigned, create, groups, pod_template
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CRDS, EVENTS, PODS, Obj, Resource
from e2e.cluster.timeline import Timeline
from e2e.fixtures.install import CLUSTER_ROLES, PODGROUPS, apply
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.podgroups import QUEUE

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
MODELS: Final = Resource("example.com", "v1", "models", "Model")
FARMS: Final = Resource("example.com", "v1", "farms", "Farm")
_ACCOUNT: Final = "trainer-kai-podgrouper"


def scaled(resource: Resource, name: str, replicas: int, **metadata: Obj) -> Obj:
    template = pod_template()
    template["metadata"] = {"labels": {"app": name}}
    template["spec"]["restartPolicy"] = "Always"
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **metadata},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


async def scale(cluster: Cluster, resource: Resource, namespace: str, name: str, to: int) -> None:
    await cluster.api.merge(resource, namespace, name, {"spec": {"replicas": to}})


async def post(cluster: Cluster, resource: Resource, namespace: str, obj: Obj) -> Obj:
    obj["metadata"]["namespace"] = namespace
    made: Obj = await cluster.api.request("POST", resource.path(namespace), obj)
    return made


def group_of(owner: Obj) -> str:
    return f"pg-{owner['metadata']['name']}-{owner['metadata']['uid']}"


def names_in(seen: Timeline, group: str) -> set[str]:
    return {it["metadata"]["name"] for it in assigned(seen, group)}


async def test_a_deployment_and_a_stateful_set(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """One PodGroup for all pods, also after a rollout; a bare pod has none."""
    cluster = webhook_installation.cluster
    web = scaled(DEPLOYMENTS, "web", 3, labels={QUEUE: "team-a"})
    async with cluster.timeline(PODS, PODGROUPS, namespace=own_namespace) as seen:
        made = [
            await post(cluster, DEPLOYMENTS, own_namespace, web),
            await post(cluster, STATEFUL_SETS, own_namespace, scaled(STATEFUL_SETS, "db", 1)),
        ]
        of_web, of_db = map(group_of, made)
        bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}}
        await create(cluster, own_namespace, {**bare, "spec": pod_template()["spec"]})
        await seen.until(lambda _: len(assigned(seen, of_web)) == 3, "three pods of web")
        await seen.until(lambda _: names_in(seen, of_db) == {"db-0"}, "the pod of db")
        change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        before = names_in(seen, of_web)
        await cluster.api.merge(DEPLOYMENTS, own_namespace, "web", change)
        await seen.until(lambda _: bool(names_in(seen, of_web) - before), "a newer pod of web")
        await scale(cluster, DEPLOYMENTS, own_namespace, "web", 0)
        await seen.until(lambda _: not assigned(seen, of_web), "web has no pod")
        await seen.settle()

        found = groups(seen)
        assert {name: it["spec"]["queue"] for name, it in found.items()} == {
            of_web: "team-a",
            of_db: "default-queue",
        }
        assert found[of_web]["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
        assert [it["spec"]["minMember"] for it in found.values()] == [1, 1]
        await cluster.api.delete(DEPLOYMENTS, own_namespace, "web")
        await seen.until(lambda _: set(groups(seen)) == {of_db}, "its PodGroup went with it")


async def test_a_kind_that_no_one_knows(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """With the right to read it, its pods are one PodGroup; without it each is one, said once."""
    cluster = webhook_installation.cluster
    for resource in (MODELS, FARMS):
        await apply(cluster, definition(resource))
    await cluster.api.until_found(MODELS.path(own_namespace))
    await cluster.api.until_found(FARMS.path(own_namespace))
    for it in reading_rights(MODELS):
        await apply(cluster, it)
    async with cluster.timeline(PODS, PODGROUPS, EVENTS, namespace=own_namespace) as seen:
        model = {**bare_object(MODELS, "m"), "metadata": {"name": "m", "labels": {QUEUE: "team-b"}}}
        owners = [
            await post(cluster, MODELS, own_namespace, model),
            await post(cluster, FARMS, own_namespace, bare_object(FARMS, "f")),
        ]
        for owner in owners:
            for index in range(2):
                await create(cluster, own_namespace, pod_of(owner, index))
        of_model = group_of(owners[0])
        await seen.until(
            lambda _: names_in(seen, of_model) == {"m-0", "m-1"}, "the pods of the Model"
        )
        await seen.until(lambda _: len(groups(seen)) == 3, "a PodGroup for each pod of the Farm")
        await seen.until(lambda _: bool(unread(seen)), "that is said")
        await seen.settle()

    found = groups(seen)
    assert found[of_model]["spec"]["queue"] == "team-b"
    alone = {it["metadata"]["name"]: it for it in seen.objects(PODS)}
    assert set(found) - {of_model} == {group_of(alone[name]) for name in ("f-0", "f-1")}
    assert len(unread(seen)) == 1
    assert "Farm f" in unread(seen)[0]["note"]


def unread(seen: Timeline) -> list[Obj]:
    return [it for it in seen.objects(EVENTS) if it.get("reason") == "OwnerNotRead"]


def bare_object(resource: Resource, name: str) -> Obj:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
    }


def pod_of(owner: Obj, index: int) -> Obj:
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"]}
    reference = {**named, "uid": meta["uid"], "controller": True}
    metadata = {"name": f"{meta['name']}-{index}", "ownerReferences": [reference]}
    assert pod_template()["spec"]["schedulerName"] == KAI
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": pod_template()["spec"],
    }


def definition(resource: Resource) -> Obj:
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }
    names = {"plural": resource.plural, "kind": resource.kind}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def reading_rights(resource: Resource) -> list[Obj]:
    """Return what docs/workloads.md says to create for a kind."""
    name = f"{_ACCOUNT}-{resource.plural}"
    rule = {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": ["get"]}
    role = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": CLUSTER_ROLES.kind,
        "metadata": {"name": name},
        "rules": [rule],
    }
    reference = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": name}
    subject = {"kind": "ServiceAccount", "namespace": "trainer-kai", "name": _ACCOUNT}
    binding = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": reference,
        "subjects": [subject],
    }
    return [role, binding]
