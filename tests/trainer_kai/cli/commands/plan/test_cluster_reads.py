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
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    CLUSTER_RUNTIMES,
    DEVICE_CLASSES,
    NODES,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
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
    assert "the files have" not in err


def test_a_runtime_of_the_other_kind_in_the_files_is_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a kind a runtimeRef names a ClusterTrainingRuntime."""
    monkeypatch.setitem(sys.modules, "trainer_kai.kube.client", None)
    runtime = yaml.safe_load(RUNTIME.read_text()) | {"kind": "TrainingRuntime"}
    code, _, err = terminal.run("-f", terminal.write("job.yaml", trainjob(), runtime))

    assert code == 2
    assert (
        f"(the files have TrainingRuntime default/{NAME}: to use it, set spec.runtimeRef.kind of "
        "TrainJob default/job to TrainingRuntime)"
    ) in err


def _template(name: str, device_class: str) -> dict[str, Any]:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def _device_class(name: str) -> dict[str, Any]:
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    return {**kind, "metadata": {"name": name}}


def _claiming_job(template: str) -> dict[str, Any]:
    """Return a Job for our scheduler whose pod has a claim by template."""
    pod = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "image": "none"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "default", "name": "job"},
        "spec": {"template": {"spec": pod}},
    }


def _notes(text: str) -> list[str]:
    return [line for line in text.splitlines() if "resourceClaim" in line]


@pytest.mark.parametrize("is_in_files", [False, True], ids=["cluster", "files"])
def test_templates_and_classes_that_do_not_exist(
    is_in_files: bool, terminal: Terminal, server: ReadOnlyApiServer
) -> None:
    objects = [_template("bad", "gup"), _template("good", "gpu.nvidia.com")]
    classes = [_device_class("gpu.nvidia.com")]
    if not is_in_files:
        for it in objects:
            server.put(CLAIM_TEMPLATES, it)
        for it in classes:
            server.put(DEVICE_CLASSES, it)
    said = {}
    for name in ("good", "bad", "unknown"):
        beside = (*objects, *classes) if is_in_files else (trainjob(),)
        code, text, err = terminal.run(
            "-f", terminal.write("job.yaml", _claiming_job(name), *beside)
        )
        assert (code, err) == (0, "")
        said[name] = _notes(text)
    path = "note: spec.template.spec.resourceClaims[0].resourceClaimTemplateName: "
    unknown_class = (
        "request 'gpu' of ResourceClaimTemplate bad names DeviceClass 'gup', which does not exist, "
        "so no pod starts until it does. Name an existing one: gpu.nvidia.com"
    )
    unknown = (
        "ResourceClaimTemplate 'unknown' does not exist in namespace default, so no pod starts "
        "until it does"
    )
    assert said == {"good": [], "bad": [path + unknown_class], "unknown": [path + unknown]}


def test_templates_that_may_not_be_listed(terminal: Terminal, server: ReadOnlyApiServer) -> None:
    """Nothing is said about them; and without claims by template they are not asked for."""
    server.forbidden.update({"resourceclaimtemplates", "deviceclasses"})
    _, text, err = terminal.run("-f", terminal.write("job.yaml", trainjob()))
    assert "resource.k8s.io" not in err

    files = terminal.write("job.yaml", trainjob(), _claiming_job("unknown"))
    _, text, err = terminal.run("-f", files)
    assert _notes(text) == []
    assert [line.split(":")[1] for line in err.splitlines()] == [
        " deviceclasses.resource.k8s.io",
        " resourceclaimtemplates.resource.k8s.io",
    ]


def _slice(node_name: str) -> dict[str, Any]:
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": node_name,
        "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**kind, "metadata": {"name": node_name}, "spec": spec}


def test_devices_of_the_cluster(terminal: Terminal, server: ReadOnlyApiServer) -> None:
    """They are read with the claims that pods share, and those of other pods are not taken."""
    template = _template("good", "gpu.nvidia.com")
    shared = {**template, "kind": "ResourceClaim", "spec": template["spec"]["spec"]}
    shared["metadata"] = {"namespace": "default", "name": "shared"}
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}
    taken = {**shared, "metadata": {"namespace": "default", "name": "of-others"}}
    taken["status"] = {"allocation": {"devices": {"results": [result]}}}
    for resource, it in (
        (NODES, node("n", 0)),
        (RESOURCE_SLICES, _slice("n")),
        (DEVICE_CLASSES, _device_class("gpu.nvidia.com")),
        (CLAIM_TEMPLATES, template),
        (RESOURCE_CLAIMS, shared),
        (RESOURCE_CLAIMS, taken),
    ):
        server.put(resource, it)
    by_name = _claiming_job("")
    by_name["metadata"]["name"] = "named"
    by_name["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimName": "shared"}
    ]
    file = terminal.write("job.yaml", trainjob(), _claiming_job("good"), by_name)
    _, text, err = terminal.run("-f", file)

    assert err == ""
    assert "  pg-job-UID starts on n (1 pod)\n    claim job-0-gpu: gpu.nvidia.com/n/gpu-0" in text
    assert "GPUs of claims 1" in text.split("Job default/named")[1]
