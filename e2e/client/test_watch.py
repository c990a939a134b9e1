"""A watch on the real API server tells every net change once, whatever happens on the way."""

import asyncio
import itertools
from typing import Final

import pytest

from e2e.cluster import resources
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience, slowdown
from e2e.fixtures.product_client import (
    CONFIG_MAPS,
    QUICK,
    client_of,
    config_map,
    recorded_watch,
    versions_on_server,
)
from tests.support.fakes.watch_recorder import WatchRecorder
from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.resources import Resource
from trainer_kai.kube.rest.request import ListTarget, Selection
from trainer_kai.kube.watch import DeltaType, Watch, WatchTiming

Maps = WatchRecorder[PartialObject]
_SILENCE_S: Final = 3.0  # longer than a busy machine may stand still


def _maps(namespace: str, **selection: str) -> ListTarget[PartialObject]:
    return ListTarget(CONFIG_MAPS, namespace, Selection(**selection))


def _is(heard: Maps, truth: dict[Key, str]) -> bool:
    return {key: found.metadata.resource_version for key, found in heard.state.items()} == truth


def _recorded(heard: Maps, since: int) -> list[tuple[DeltaType, str]]:
    return [(change.type, change.key.name) for change in heard.changes[since:]]


async def test_changes_come_in_order(cluster: Cluster, namespace: str) -> None:
    """What is made, changed and deleted is told as that, each once."""
    api = cluster.api
    async with (
        client_of(cluster.kubeconfig) as client,
        recorded_watch(client, _maps(namespace)) as heard,
    ):
        since = len(heard.changes)
        await api.create(config_map(namespace, "a"))
        await api.merge(resources.CONFIG_MAPS, namespace, "a", {"data": {"k": "v"}})
        await api.delete(resources.CONFIG_MAPS, namespace, "a")
        await api.create(config_map(namespace, "a"))
        await heard.until(lambda: len(heard.changes) >= since + 4, "four changes")

        wanted = [DeltaType.ADDED, DeltaType.MODIFIED, DeltaType.DELETED, DeltaType.ADDED]
        assert _recorded(heard, since) == [(what, "a") for what in wanted]


async def test_lists_are_read_in_pages(cluster: Cluster, namespace: str) -> None:
    """A list that needs several requests is told whole, and followed from there."""
    await cluster.api.create_all([config_map(namespace, f"m-{n}") for n in range(25)])
    async with (
        client_of(cluster.kubeconfig) as client,
        recorded_watch(client, _maps(namespace), WatchTiming(page_items=10)) as heard,
    ):
        assert heard.reads == ["PAGE"] * 3
        assert _is(heard, await versions_on_server(cluster, namespace))

        await cluster.api.create(config_map(namespace, "late"))
        await heard.until(lambda: Key(namespace, "late") in heard.state, "the new one")


async def test_selectors_let_objects_come_and_go(cluster: Cluster, namespace: str) -> None:
    """An object that stops matching is deleted as far as this watch goes."""
    api = cluster.api
    await api.create(config_map(namespace, "a"))
    async with (
        client_of(cluster.kubeconfig) as client,
        recorded_watch(client, _maps(namespace, labels="team=a")) as heard,
        recorded_watch(client, _maps(namespace, fields="metadata.name=a")) as named,
    ):
        assert heard.state == {}
        assert set(named.state) == {Key(namespace, "a")}

        labels = {"metadata": {"labels": {"team": "a"}}}
        await api.merge(resources.CONFIG_MAPS, namespace, "a", labels)
        await heard.until(lambda: len(heard.changes) == 1, "it matches")
        labels["metadata"]["labels"]["team"] = "b"
        await api.merge(resources.CONFIG_MAPS, namespace, "a", labels)
        await heard.until(lambda: len(heard.changes) == 2, "it matches no more")

        assert _recorded(heard, 0) == [(DeltaType.ADDED, "a"), (DeltaType.DELETED, "a")]


async def test_only_metadata_is_sent_when_that_is_asked_for(
    cluster: Cluster, namespace: str
) -> None:
    """A kind can be followed at a fraction of its size."""
    api = cluster.api
    async with client_of(cluster.kubeconfig) as client:
        only = ListTarget(CONFIG_MAPS, namespace, only_metadata=True)
        async with recorded_watch(client, only) as heard, cluster.proxy() as proxy:
            await api.create(config_map(namespace, "large", text="x" * 500_000))
            await heard.until(lambda: Key(namespace, "large") in heard.state, "it is told")

            async with client_of(cluster.proxied_kubeconfig(proxy)) as through:
                proxy.cut(100_000)  # far more than the metadata, far less than the object
                found = await through.list(only)
                assert not proxy.is_cut
            assert {item.metadata.name for item in found} >= {"large"}


async def test_the_api_server_may_be_killed_and_restarted(damaged_cluster: Cluster) -> None:
    """Whoever writes on meanwhile is heard in the end, each change once."""
    async with (
        client_of(damaged_cluster.kubeconfig) as client,
        recorded_watch(client, _maps("default")) as heard,
    ):
        for round_number in range(2):
            await _churn(damaged_cluster, f"before-{round_number}")
            await damaged_cluster.restart_api_server()
            await _churn(damaged_cluster, f"after-{round_number}")
        truth = await versions_on_server(damaged_cluster, "default")
        await heard.until(lambda: _is(heard, truth), "the same state as the API server's")
        assert heard.failures


async def _churn(cluster: Cluster, prefix: str) -> None:
    """Make ten objects, change all, delete every other one."""
    api = cluster.api
    for number in range(10):
        name = f"{prefix}-{number}"
        await api.create(config_map("default", name))
        await api.merge(resources.CONFIG_MAPS, "default", name, {"data": {"k": "v"}})
        if number % 2:
            await api.delete(resources.CONFIG_MAPS, "default", name)


async def test_a_gap_in_history_is_closed_by_a_diff(damaged_cluster: Cluster) -> None:
    """After a compaction the difference is told: no more and no less."""
    api = damaged_cluster.api
    for name in ("stays", "changes", "goes", "returns"):
        await api.create(config_map("default", name))
    async with (
        damaged_cluster.proxy() as proxy,
        client_of(damaged_cluster.proxied_kubeconfig(proxy)) as client,
        recorded_watch(client, _maps("default")) as heard,
    ):
        since = len(heard.changes)
        returned = heard.state[Key("default", "returns")].metadata.uid
        await proxy.shut()
        for value in ("one", "two"):
            await api.merge(resources.CONFIG_MAPS, "default", "changes", {"data": {"k": value}})
        await api.delete(resources.CONFIG_MAPS, "default", "goes")
        await api.delete(resources.CONFIG_MAPS, "default", "returns")
        for name in ("returns", "comes"):
            await api.create(config_map("default", name))
        await damaged_cluster.forget_history()
        await proxy.open()
        await heard.until(lambda: heard.synced == 2, "a second list")

        assert any("410" in trouble for trouble in heard.failures), heard.failures
        assert _is(heard, await versions_on_server(damaged_cluster, "default"))
        assert sorted(_recorded(heard, since), key=str) == sorted(
            [
                (DeltaType.MODIFIED, "changes"),
                (DeltaType.DELETED, "goes"),
                (DeltaType.DELETED, "returns"),
                (DeltaType.ADDED, "returns"),
                (DeltaType.ADDED, "comes"),
            ],
            key=str,
        )
        gone = [c for c in heard.changes[since:] if c.type is DeltaType.DELETED]
        assert [c.uid for c in gone if c.key.name == "returns"] == [returned]
        assert {c.object for c in gone} == {None}


async def test_a_stream_may_break_in_the_middle_of_a_line(cluster: Cluster, namespace: str) -> None:
    """Half an event is no event; it is told once it has come whole."""
    async with (
        cluster.proxy() as proxy,
        client_of(cluster.proxied_kubeconfig(proxy)) as client,
        recorded_watch(client, _maps(namespace)) as heard,
    ):
        since = len(heard.changes)
        proxy.cut(100_000, applies=lambda _method, path: "watch=true" in path)
        await cluster.api.create(config_map(namespace, "long", text="x" * 300_000))
        await heard.until(lambda: len(heard.changes) > since, "the event")

        assert proxy.is_cut
        assert len(heard.failures) == 1
        assert heard.synced == 1
        assert _recorded(heard, since) == [(DeltaType.ADDED, "long")]


async def test_an_object_may_be_larger_than_two_mebibytes(cluster: Cluster, namespace: str) -> None:
    """On the wire an object of one mebibyte can be six: listed and followed all the same."""
    big = config_map(namespace, "big", text="<" * 900_000)  # each is sent as \u003c
    async with client_of(cluster.kubeconfig) as client:
        async with recorded_watch(client, _maps(namespace)) as heard:
            await cluster.api.create(big)
            await heard.until(lambda: Key(namespace, "big") in heard.state, "it is told")
            assert heard.failures == []
        async with recorded_watch(client, _maps(namespace)) as later:
            assert Key(namespace, "big") in later.state


async def test_latency_delays_and_loses_nothing(cluster: Cluster, namespace: str) -> None:
    """With 50 ms more on every way, changes come later, and all of them."""
    async with (
        cluster.proxy() as proxy,
        client_of(cluster.proxied_kubeconfig(proxy)) as client,
        recorded_watch(client, _maps(namespace)) as heard,
    ):
        proxy.delay(0.05)
        await cluster.api.create_all([config_map(namespace, f"m-{n}") for n in range(200)])
        truth = await versions_on_server(cluster, namespace)
        async with patience(5):
            await heard.until(lambda: _is(heard, truth), "all of them")
        assert heard.failures == []


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_burst_of_refusals_is_waited_out(
    status: int, cluster: Cluster, namespace: str
) -> None:
    """The watch asks again, later each time, and goes on where it was."""
    async with (
        cluster.proxy() as proxy,
        client_of(cluster.proxied_kubeconfig(proxy)) as client,
        recorded_watch(client, _maps(namespace)) as heard,
    ):
        proxy.burst(status, 3, applies=lambda method, _path: method == "GET", retry_after_s=0)
        proxy.reset()
        await cluster.api.create(config_map(namespace, "a"))
        await heard.until(lambda: Key(namespace, "a") in heard.state, "the change")

        assert proxy.refusals_left == 0
        assert proxy.answered[status] == 3
        assert heard.synced == 1


async def test_a_frozen_api_server_is_taken_for_dead(damaged_cluster: Cluster) -> None:
    """A connection that stays open and silent is given up, and the next one goes on from there."""
    pace = WatchTiming(first_wait_s=0.05, longest_wait_s=0.5, silence_s=_SILENCE_S * slowdown())
    async with (
        client_of(damaged_cluster.kubeconfig) as client,
        recorded_watch(client, _maps("default"), pace) as heard,
        asyncio.TaskGroup() as group,
    ):
        await damaged_cluster.api.create(config_map("default", "busy"))
        writing = group.create_task(_keep_busy(damaged_cluster, "busy"))
        first = len(heard.changes)
        busy = first + int(_SILENCE_S * slowdown() * 15)  # for longer than it may be silent
        await heard.until(lambda: len(heard.changes) > busy, "a watch that is never silent")
        assert heard.failures == []

        damaged_cluster.process("kube-apiserver").pause()
        await heard.until(lambda: len(heard.failures) >= 1, "it is missed")
        damaged_cluster.process("kube-apiserver").resume()
        known = len(heard.changes)
        await heard.until(lambda: len(heard.changes) > known + 10, "further changes")

        assert heard.synced == 1
        writing.cancel()


async def _keep_busy(cluster: Cluster, name: str) -> None:
    """Change an object ten times a second."""
    for number in itertools.count():
        data = {"data": {"n": f"{number}"}}
        await cluster.api.merge(resources.CONFIG_MAPS, "default", name, data)
        await asyncio.sleep(0.1)


async def test_a_kind_that_comes_later_is_waited_for(damaged_cluster: Cluster) -> None:
    """A watch of a kind that nobody serves yet says so, and begins when its CRD is there."""
    gadgets = Resource("example.com", "v1", "gadgets", "Gadget", False, PartialObject)  # noqa: FBT003
    heard: Maps = WatchRecorder()
    async with client_of(damaged_cluster.kubeconfig) as client, asyncio.TaskGroup() as group:
        watch = Watch(client, ListTarget(gadgets), heard, timing=QUICK)
        following = group.create_task(watch.run(heard.change, heard.has_synced))
        await heard.until(lambda: len(heard.failures) >= 2, "it is missed")
        assert "is their CRD installed?" in watch.trouble
        assert heard.synced == 0

        await damaged_cluster.api.create(_definition(gadgets))
        await damaged_cluster.api.until_found("/apis/example.com/v1/gadgets")
        made = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}}
        await damaged_cluster.api.request("POST", "/apis/example.com/v1/gadgets", made)
        await heard.until(lambda: Key("", "a") in heard.state, "the object")
        following.cancel()


def _definition(resource: Resource[PartialObject]) -> resources.Obj:
    names = {"plural": resource.plural, "kind": resource.kind}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Cluster",
            "names": names,
            "versions": [version],
        },
    }
