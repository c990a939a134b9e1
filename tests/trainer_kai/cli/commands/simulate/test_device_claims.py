"""Claims in a simulation: made for pods, allocated, freed, and shown."""

from typing import Any

import pytest

from tests.support.workloads.simulate_objects import group, node, pod, queue
from trainer_kai.cli.commands.simulate.simulation import (
    SimulationOptions,
    prepare,
    run,
    simulate,
)
from trainer_kai.cli.commands.simulate.text_output import as_text
from trainer_kai.cli.input.documents import Document

_CLASS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
}
_TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        }
    },
}


def _slice(of: str, devices: int) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": of},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": of,
            "pool": {"name": of, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{n}"} for n in range(devices)],
        },
    }


def _claiming(name: str, of: str) -> dict[str, Any]:
    found = pod(name, of)
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    found["spec"]["containers"] = [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]
    return found


def _running(name: str, of: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a pod on node a, and its claim."""
    found = _claiming(name, of)
    found["spec"]["nodeName"] = "a"
    found["metadata"]["uid"] = name
    found["status"] = {
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
    }
    device = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{name}-gpu",
            "namespace": "default",
            "ownerReferences": [owner],
        },
        "spec": _TEMPLATE["spec"]["spec"],
        "status": {
            "allocation": {"devices": {"results": [device]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
        },
    }
    return found, claim


def _binds(document: dict[str, Any], cycle: int = 0) -> dict[str, Any]:
    return {it["pod"]: it.get("claims") for it in document["cycles"][cycle]["binds"]}


def test_pods_get_claims_and_devices() -> None:
    objects = [_CLASS, _TEMPLATE, queue("team-a"), node("a", gpus=0), _slice("a", 2)]
    pods = [group("g", 2), _claiming("p0", "g"), _claiming("p1", "g")]
    document = simulate([*objects, *pods])
    assert _binds(document) == {
        "p0": {"p0-gpu": ["gpu.nvidia.com/a/gpu-0"]},
        "p1": {"p1-gpu": ["gpu.nvidia.com/a/gpu-1"]},
    }


def test_the_table_names_the_devices_of_each_claim_once() -> None:
    """Two pods share a claim, and a third one has its own."""
    shared = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "shared",
            "namespace": "default",
            "labels": {"kai.scheduler/queue": "team-a"},
        },
        "spec": _TEMPLATE["spec"]["spec"],
    }
    pods = [_claiming(f"p{n}", "g") for n in range(3)]
    for it in pods[:2]:
        it["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    objects = [_CLASS, _TEMPLATE, queue("team-a"), node("a", gpus=0), _slice("a", 2), shared]
    options = SimulationOptions()
    documents = [Document("a.yaml", it) for it in (*objects, group("g", 3), *pods)]

    text = as_text(run(prepare(documents, options), options))

    assert text.splitlines()[-4:] == [
        "CYCLE 1   3 bound",
        "  bound to a: default/p0, default/p1, default/p2",
        "    claim default/shared: gpu.nvidia.com/a/gpu-0",
        "    claim default/p2-gpu: gpu.nvidia.com/a/gpu-1",
    ]


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong with the claim, so it is not Misconfigured."""

    def missing() -> None:
        raise ModuleNotFoundError("cel_expr_python")

    monkeypatch.setattr("scheduler.state.claims.selectors._environment", missing)
    objects = [_CLASS, _TEMPLATE, queue("team-a"), node("a", gpus=0), _slice("a", 1)]
    document = simulate([*objects, group("g"), _claiming("p", "g")])

    (waiting,) = document["cycles"][0]["unschedulable"]
    assert waiting["reason"] == "NoNodeMatches"
    assert waiting["message"] == (
        "spec.resourceClaims[gpu] of pod p: DeviceClass gpu.nvidia.com: the expression of "
        "selectors[0] cannot be read, because the Python package cel-expr-python is not "
        "installed. It cannot start before the package is in the environment of trainer-kai "
        "(pip install cel-expr-python, or pip install . in a checkout of trainer-kai)"
    )


def test_a_second_cycle_counts_what_the_first_one_allocated() -> None:
    objects = [_CLASS, _TEMPLATE, queue("team-a"), node("a", gpus=0), _slice("a", 1)]
    pods = [group("g"), _claiming("p0", "g"), group("h"), _claiming("p1", "h")]
    document = simulate([*objects, *pods], SimulationOptions(cycles=2))
    assert [len(_binds(document, cycle)) for cycle in (0, 1)] == [1, 0]
    (waiting,) = document["cycles"][1]["unschedulable"]
    assert waiting["reason"] == "NoCapacity"
    assert "of 1 device there, 1 is taken" in waiting["message"]


def test_a_victim_frees_its_device() -> None:
    """Its pod is made again, and its claim is free for the pod that it made room for."""
    objects = [_CLASS, _TEMPLATE, queue("team-a"), node("a", gpus=0), _slice("a", 1)]
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 90,
    }
    running, claim = _running("p0", "low")
    started = group("low", priorityClassName="")
    started["metadata"]["annotations"] = {
        "kai.scheduler/last-start-timestamp": "2026-01-05T07:00:00Z"
    }
    preemptor = [high, group("top", priorityClassName="high"), _claiming("p1", "top")]
    document = simulate(
        [*objects, started, running, claim, *preemptor], SimulationOptions(cycles=2)
    )
    assert [it["pod"] for it in document["cycles"][0]["evictions"]] == ["p0"]
    assert _binds(document, 1) == {"p1": {"p1-gpu": ["gpu.nvidia.com/a/gpu-0"]}}


def test_pods_of_a_job_get_claims() -> None:
    """They do not exist yet: the simulation makes the pods, and then their claims."""
    template = _claiming("of-job", "")["spec"]
    template["restartPolicy"] = "Never"
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "default",
            "uid": "j",
            "labels": {"kai.scheduler/queue": "team-a"},
            "annotations": {"kai.scheduler/batch-min-member": "2"},
        },
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": template}},
    }
    objects = [_CLASS, _TEMPLATE, queue("team-a"), node("a", gpus=0), _slice("a", 2)]
    assert _binds(simulate([*objects, job])) == {
        "j-0": {"j-0-gpu": ["gpu.nvidia.com/a/gpu-0"]},
        "j-1": {"j-1-gpu": ["gpu.nvidia.com/a/gpu-1"]},
    }
