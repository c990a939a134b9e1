"""What `trainer-kai migrate` reads from a cluster, and what it says where it may not."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.support.clock import VirtualClock
from tests.support.fakes.readonly_server import ReadOnlyApiServer
from trainer_kai.api.meta import PartialObject
from trainer_kai.api.resources import JOBSETS, PODS, QUEUES, TRAINJOBS, Resource
from trainer_kai.cli.commands.migrate import fetch
from trainer_kai.cli.options import Connection
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse

CLUSTER_QUEUES: Resource[Any] = Resource(
    "kueue.x-k8s.io",
    "v1beta2",
    "clusterqueues",
    "ClusterQueue",
    namespaced=False,
    struct=PartialObject,
)


NOWHERE: Final = Connection(kubeconfig="", context="", user="", timeout_s=1.0)


class ServingKinds(ReadOnlyApiServer):
    """An API server that says which kinds it serves."""

    def __init__(self, *kinds: Resource[Any]) -> None:
        super().__init__()
        self.kinds = kinds

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        if request.path not in {"/api", "/apis"}:
            return await super().send(request, timeout_s)
        items = [
            {
                "metadata": {"name": it.group},
                "versions": [
                    {
                        "version": it.version,
                        "resources": [
                            {
                                "resource": it.plural,
                                "scope": "Namespaced" if it.namespaced else "Cluster",
                                "responseKind": {"kind": it.kind},
                            }
                        ],
                    }
                ],
            }
            for it in self.kinds
            if bool(it.group) == (request.path == "/apis")
        ]
        return ApiResponse(200, json.dumps({"items": items}).encode())


def connected(monkeypatch: pytest.MonkeyPatch, server: ServingKinds) -> None:
    access = RestConfig("https://h", StaticToken(""), origin="the test")

    @asynccontextmanager
    async def command_client(**_: str) -> AsyncIterator[Client]:
        yield Client(access, server, VirtualClock(), NoRequestObserver())

    monkeypatch.setattr(fetch, "command_client", command_client)


async def test_objects_are_read_in_the_version_that_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kinds that the cluster lacks have no objects; of workloads only those with the label."""
    server = ServingKinds(CLUSTER_QUEUES, TRAINJOBS)
    server.put(CLUSTER_QUEUES, {"metadata": {"name": "q"}, "spec": {"cohortName": "c"}})
    connected(monkeypatch, server)
    (document,) = await fetch.fetch_documents("kueue", NOWHERE)

    assert document.fields == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {"cohortName": "c"},
    }
    assert "labelSelector=kueue.x-k8s.io" in server.requests[-1].target
    assert {it.method for it in server.requests} == {"GET"}


async def test_pods_are_those_of_the_scheduler_without_their_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large cluster has many; most of a pod is not needed."""
    server = ServingKinds(QUEUES, JOBSETS, PODS)
    spec = {"schedulerName": "kai-scheduler", "nodeName": "n", "containers": [{"name": "c"}]}
    meta = {"namespace": "ns", "name": "p"}
    server.put(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
    server.put(PODS, {"metadata": {**meta, "name": "o"}, "spec": {"schedulerName": "x"}})
    connected(monkeypatch, server)
    (document,) = await fetch.fetch_documents("kai", NOWHERE)

    assert document.fields["spec"] == {"schedulerName": "kai-scheduler", "nodeName": "n"}
    assert document.fields["status"] == {"phase": "Running"}


async def test_a_cluster_without_the_system_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is named."""
    connected(monkeypatch, ServingKinds(QUEUES))

    with pytest.raises(ConfigError, match=r"clusterqueues.kueue.x-k8s.io: the cluster does not"):
        await fetch.fetch_documents("kueue", NOWHERE)


async def test_what_may_not_be_listed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest is read."""
    server = ServingKinds(QUEUES, JOBSETS, PODS)
    server.put(QUEUES, {"metadata": {"name": "q"}})
    server.forbidden.add("pods")
    connected(monkeypatch, server)

    assert [it.kind for it in await fetch.fetch_documents("kai", NOWHERE)] == ["Queue"]
    assert capsys.readouterr().err == (
        "trainer-kai: pods: not included, because you may not list them\n"
    )
