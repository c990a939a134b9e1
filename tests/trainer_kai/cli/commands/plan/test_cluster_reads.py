"""`trainer-kai plan` with a cluster: what no file has is read from it, as far as allowed."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.clock import VirtualClock
from tests.support.fakes.readonly_server import ReadOnlyApiServer
from tests.support.repository import ROOT
from tests.support.terminal import Terminal
from tests.support.workloads.simulate_objects import node, queue
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import CLUSTER_RUNTIMES, NODES, QUEUES
from trainer_kai.kube import client as kube_client
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse

NAME = "torch-distributed"
RUNTIME = ROOT / "tests" / "fixtures" / "runtimes" / f"{NAME}.yaml"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ReadOnlyApiServer:
    made = ReadOnlyApiServer()
    access = RestConfig("https://h", StaticToken(""), origin="the test")

    @asynccontextmanager
    async def command_client(**_: str) -> AsyncIterator[Client]:
        yield Client(access, made, VirtualClock(), NoRequestObserver())

    monkeypatch.setattr(kube_client, "command_client", command_client)
    made.put(CLUSTER_RUNTIMES, yaml.safe_load(RUNTIME.read_text()))
    made.put(QUEUES, queue("team-b"))
    made.put(NODES, node("n", 8))
    return made


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal("plan", tmp_path, capsys)


def trainjob() -> dict[str, Any]:
    """Return a TrainJob of two pods with 16 GPUs each in a queue that does not exist."""
    trainer = {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 16}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "labels": {"kai.scheduler/queue": "team-a"}},
        "spec": {"runtimeRef": {"name": NAME}, "trainer": trainer},
    }


def test_queues_and_nodes_of_the_cluster_are_compared(
    terminal: Terminal, server: ReadOnlyApiServer
) -> None:
    """Nodes of a live cluster can change, so they make a note and not exit code 1."""
    code, text, err = terminal.run("-f", terminal.write("job.yaml", trainjob()))

    assert (code, err) == (0, "")
    paths = [line.split(": ")[1] for line in text.splitlines() if line.startswith("note: ")]
    assert paths == [
        "spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]",
        "metadata.labels[kai.scheduler/queue]",
    ]
    assert server.requests


def test_files_outrank_the_cluster(terminal: Terminal, server: ReadOnlyApiServer) -> None:
    """A kind that a file has is not read; with all runtimes in files no cluster is asked."""
    files = terminal.write("job.yaml", trainjob(), queue("team-a"), node("large", 16))
    _, text, _ = terminal.run("-f", files)
    assert "note: " not in text

    server.requests.clear()
    terminal.run("-f", files, "-f", str(RUNTIME))
    assert server.requests == []
    terminal.run("-f", files, "-f", str(RUNTIME), "--context", "a")
    assert server.requests


def test_a_kind_that_may_not_be_listed_is_reported(
    terminal: Terminal, server: ReadOnlyApiServer
) -> None:
    """The plan is printed without its findings."""
    server.forbidden.update({"nodes", "queues"})

    code, text, err = terminal.run("-f", terminal.write("job.yaml", trainjob()))

    assert code == 0
    assert "note: " not in text
    assert err.splitlines() == [
        f"trainer-kai: {kind}: not compared with the cluster, because you may not list them"
        for kind in ("nodes", "queues.scheduling.run.ai")
    ]


def test_a_failed_list_is_reported(
    terminal: Terminal, server: ReadOnlyApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime was found, so the plan is printed; no other file is needed."""
    send = server.send

    async def failing(request: Request, timeout_s: float) -> ApiResponse:
        if request.path.endswith("/nodes"):
            return ApiResponse(400, b'{"kind": "Status", "code": 400, "message": "broken"}')
        return await send(request, timeout_s)

    monkeypatch.setattr(server, "send", failing)
    code, text, err = terminal.run("-f", terminal.write("job.yaml", trainjob()))

    assert (code, text.startswith("TrainJob default/job")) == (0, True)
    assert err.startswith("trainer-kai: nodes: not compared with the cluster: ")
    assert "broken" in err


def test_a_missing_runtime_is_reported_first(terminal: Terminal, server: ReadOnlyApiServer) -> None:
    """Nothing else is read for a plan that cannot be made."""
    server.remove(CLUSTER_RUNTIMES, Key("", NAME))
    code, _, err = terminal.run("-f", terminal.write("job.yaml", trainjob()))

    assert code == 2
    assert "is neither in the files nor in the cluster" in err
    assert len(server.requests) == 1


def test_without_the_packages_for_a_cluster_the_file_is_asked_for(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `.try`, which has only what files need."""
    monkeypatch.setitem(sys.modules, "trainer_kai.kube.client", None)
    code, _, err = terminal.run("-f", terminal.write("job.yaml", trainjob()))

    assert code == 2
    assert f"-f: add the file of ClusterTrainingRuntime {NAME} with another -f" in err
