"""Every verb of the client, as the real API server understands it."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster import resources
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience, slowdown
from e2e.fixtures.product_client import CONFIG_MAPS, client_of, config_map
from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.resources import Resource
from trainer_kai.kube.client import AccessRequest, Client, Discovery, bind, review_access
from trainer_kai.kube.rest.request import DeleteOptions, ListTarget, WriteOptions
from trainer_kai.kube.rest.response import AlreadyExists, Conflict, Invalid, NotFound, Unavailable

PODS: Final = Resource("", "v1", "pods", "Pod", True, PartialObject)  # noqa: FBT003
NODES: Final = Resource("", "v1", "nodes", "Node", False, PartialObject)  # noqa: FBT003
_DELAY_S: Final = 0.5  # in which a client can begin many requests


@pytest_asyncio.fixture(loop_scope="session")
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """Return our client on the shared chain."""
    async with client_of(cluster.kubeconfig) as ours:
        yield ours


async def test_an_object_is_made_once(client: Client, namespace: str) -> None:
    """A second one of that name is a refusal of its own kind; a dry run makes none."""
    key, body = Key(namespace, "a"), config_map(namespace, "a")
    await client.create(CONFIG_MAPS, namespace, body, WriteOptions(dry_run=True))
    with pytest.raises(NotFound, match=f"GET /api/v1/namespaces/{namespace}/configmaps/a: 404"):
        await client.get(CONFIG_MAPS, key)

    made = await client.create(CONFIG_MAPS, namespace, body)

    assert await client.get(CONFIG_MAPS, key) == made
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, namespace, body)


async def test_what_was_read_before_a_change_cannot_be_written(
    client: Client, namespace: str
) -> None:
    """Replacing an object, and patching one with a version, fail once it has changed."""
    key = Key(namespace, "a")
    made = await client.create(CONFIG_MAPS, namespace, config_map(namespace, "a"))
    await client.merge_patch(CONFIG_MAPS, key, {"data": {"k": "v"}})
    stale = config_map(namespace, "a")
    stale["metadata"] = {"name": "a", "resourceVersion": made.metadata.resource_version}

    with pytest.raises(Conflict):
        await client.replace(CONFIG_MAPS, key, stale)
    with pytest.raises(Conflict):
        await client.merge_patch(CONFIG_MAPS, key, stale)


async def test_applied_fields_have_an_owner(
    cluster: Cluster, client: Client, namespace: str
) -> None:
    """What one manager owns another takes only by force; what is left out next time is removed."""
    key = Key(namespace, "a")
    ours, theirs = WriteOptions(field_manager="ours"), WriteOptions(field_manager="theirs")
    await client.apply(CONFIG_MAPS, key, {"data": {"k": "ours", "only": "ours"}}, ours)

    with pytest.raises(Conflict, match='conflict with "ours"'):
        await client.apply(CONFIG_MAPS, key, {"data": {"k": "theirs"}}, theirs)
    forced = WriteOptions(field_manager="theirs", force=True)
    await client.apply(CONFIG_MAPS, key, {"data": {"k": "theirs"}}, forced)
    await client.apply(CONFIG_MAPS, key, {"data": {}}, ours)

    found = await cluster.api.get(resources.CONFIG_MAPS, namespace, "a")
    assert found["data"] == {"k": "theirs"}
    with pytest.raises(ValueError, match="needs a field manager"):
        await client.apply(CONFIG_MAPS, key, {}, WriteOptions())


async def test_operations_are_conditional(client: Client, namespace: str) -> None:
    """A JSON Patch whose test fails changes nothing."""
    key = Key(namespace, "a")
    await client.create(CONFIG_MAPS, namespace, config_map(namespace, "a", k="v"))
    change = {"op": "replace", "path": "/data/k", "value": "w"}
    wrong = {"op": "test", "path": "/data/k", "value": "other"}
    right = {"op": "test", "path": "/data/k", "value": "v"}

    with pytest.raises(Invalid):
        await client.json_patch(CONFIG_MAPS, key, [wrong, change])
    await client.json_patch(CONFIG_MAPS, key, [right, change])


async def test_unknown_fields_are_refused_when_asked_to(client: Client, namespace: str) -> None:
    """Strict writes find typing errors; the others drop what nobody knows."""
    body = {**config_map(namespace, "a"), "dta": {}}
    with pytest.raises(Invalid, match='unknown field "dta"'):
        await client.create(CONFIG_MAPS, namespace, body, WriteOptions(strict=True))

    await client.create(CONFIG_MAPS, namespace, body)


async def test_only_the_very_object_is_deleted(client: Client, namespace: str) -> None:
    """A deletion with a uid leaves a successor of that name alone."""
    key, body = Key(namespace, "a"), config_map(namespace, "a")
    first = await client.create(CONFIG_MAPS, namespace, body)
    await client.delete(CONFIG_MAPS, key, DeleteOptions(uid=first.metadata.uid))
    second = await client.create(CONFIG_MAPS, namespace, body)

    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, key, DeleteOptions(uid=first.metadata.uid))
    await client.delete(CONFIG_MAPS, key, DeleteOptions(uid=second.metadata.uid, dry_run=True))

    assert await client.get(CONFIG_MAPS, key) == second


async def test_a_status_is_a_part_of_its_own(
    cluster: Cluster, client: Client, namespace: str
) -> None:
    """A status is written through its subresource and nowhere else."""
    await _make_pod(cluster, namespace, "a")
    key = Key(namespace, "a")
    status = {"status": {"nominatedNodeName": "node-0"}}

    await client.merge_patch(PODS, key, status)
    assert "nominatedNodeName" not in (await _read(cluster, namespace, "a"))["status"]
    await client.merge_patch(PODS, key, status, WriteOptions(subresource="status"))
    assert (await _read(cluster, namespace, "a"))["status"]["nominatedNodeName"] == "node-0"


async def test_only_the_very_pod_is_bound(cluster: Cluster, client: Client, namespace: str) -> None:
    """Another uid or version is refused; a good binding binds once, and carries annotations."""
    made = await _make_pod(cluster, namespace, "a")
    key = Key(namespace, "a")

    with pytest.raises(Conflict):
        await bind(client, key, "node-0", uid="somebody-else")
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    changed = await client.merge_patch(
        PODS, key, {"metadata": {"labels": {"example.com/new": "1"}}}
    )
    with pytest.raises(Conflict):
        await bind(client, key, "node-0", uid=uid, version=version)
    version, notes = changed.metadata.resource_version, {"example.com/why": "test"}
    await bind(client, key, "node-0", uid=uid, version=version, annotations=notes)
    with pytest.raises(Conflict, match="already assigned to node"):
        await bind(client, key, "node-1", uid=uid)

    found = await _read(cluster, namespace, "a")
    assert found["spec"]["nodeName"] == "node-0"
    assert found["metadata"]["annotations"]["example.com/why"] == "test"


async def test_authorizers_answer_with_the_namespace_in_mind(
    cluster: Cluster, client: Client, namespace: str
) -> None:
    """A RoleBinding in a namespace lets its service accounts use a queue there, and only there."""
    group = f"system:serviceaccounts:{namespace}"
    rule = {
        "apiGroups": ["scheduling.run.ai"],
        "resources": ["queues"],
        "verbs": ["use"],
        "resourceNames": ["team-a"],
    }
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await cluster.api.request(
        "POST", f"{rbac}/roles", {"metadata": {"name": "use-team-a"}, "rules": [rule]}
    )
    binding = {
        "metadata": {"name": "use-team-a"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "use-team-a"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    }
    await cluster.api.request("POST", f"{rbac}/rolebindings", binding)

    async def may(queue: str, where: str) -> bool:
        question = AccessRequest(
            "use", "scheduling.run.ai", "queues", queue, where, groups=(group,)
        )
        return (await review_access(client, question)).allowed

    async with patience(10):
        while not await may("team-a", namespace):  # the authorizer reads its rules by a watch
            await asyncio.sleep(0.05)
    assert not await may("team-b", namespace)
    assert not await may("team-a", "default")


async def test_kinds_are_found_by_any_of_their_names(client: Client) -> None:
    """People write plurals, kinds, short names and groups."""
    served = Discovery(client)

    for name in ("trainjobs", "TrainJob", "trainjob.trainer.kubeflow.org"):
        found = await served.find(name)
        assert found is not None
        assert str(found) == "trainjobs.trainer.kubeflow.org"
    pods = await served.find("po")
    assert pods == PODS
    assert await served.find("no-such-kind") is None
    assert await served.serves(NODES)
    assert not await served.serves(Resource("x.io", "v1", "y", "Y", True, PartialObject))  # noqa: FBT003


@pytest.mark.parametrize(("status", "made"), [(429, True), (503, False)])
async def test_a_write_is_repeated_only_if_it_cannot_have_happened(
    status: int, cluster: Cluster, namespace: str, *, made: bool
) -> None:
    """Too many requests: nothing was done, so it is asked again. Anything else may be done."""
    async with (
        cluster.proxy() as proxy,
        client_of(cluster.proxied_kubeconfig(proxy)) as through,
    ):
        proxy.burst(status, 1, applies=lambda method, _path: method == "POST")
        body = config_map(namespace, "a")
        if made:
            began = time.monotonic()
            await through.create(CONFIG_MAPS, namespace, body)
            assert time.monotonic() - began >= 1, "Retry-After says one second"
        else:
            with pytest.raises(Unavailable, match="refused by the fault proxy"):
                await through.create(CONFIG_MAPS, namespace, body)
        assert proxy.answered == ({status: 1, 201: 1} if made else {status: 1})


async def test_a_repeatable_write_survives_a_lost_answer(cluster: Cluster, namespace: str) -> None:
    """Applying is done again when the connection breaks: twice is as good as once."""
    async with (
        cluster.proxy() as proxy,
        client_of(cluster.proxied_kubeconfig(proxy)) as through,
    ):
        proxy.cut(10, applies=lambda method, _path: method == "PATCH")
        write = WriteOptions(field_manager="ours")
        applied = await through.apply(CONFIG_MAPS, Key(namespace, "a"), {"data": {"k": "v"}}, write)

        assert proxy.is_cut
        assert proxy.answered == {201: 1, 200: 1}
        assert applied.metadata.name == "a"


async def test_latency_is_not_added_up(cluster: Cluster, namespace: str) -> None:
    """A hundred requests at once do not wait for each other."""
    async with (
        cluster.proxy() as proxy,
        client_of(cluster.proxied_kubeconfig(proxy)) as through,
    ):
        proxy.delay(_DELAY_S * slowdown())
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                body = config_map(namespace, f"m-{number}")
                group.create_task(through.create(CONFIG_MAPS, namespace, body))
        assert proxy.most_under_way > 20

    found = await through_list(cluster, namespace)
    assert {f"m-{number}" for number in range(100)} <= found


async def through_list(cluster: Cluster, namespace: str) -> set[str]:
    """Return the names that another client sees."""
    async with client_of(cluster.kubeconfig) as client:
        maps = await client.list(ListTarget(CONFIG_MAPS, namespace))
    return {item.metadata.name for item in maps}


async def _make_pod(cluster: Cluster, namespace: str, name: str, **labels: str) -> resources.Obj:
    return await cluster.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {
                "schedulerName": "nobody",
                "containers": [{"name": "main", "image": "none"}],
            },
        }
    )


async def _read(cluster: Cluster, namespace: str, name: str) -> resources.Obj:
    return await cluster.api.get(resources.PODS, namespace, name)
