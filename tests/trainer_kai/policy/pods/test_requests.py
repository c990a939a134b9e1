"""A pod asks for what Kubernetes would count: `PodRequests`, after the API server's defaults."""

from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.pod import Pod
from trainer_kai.policy.pods.requests import format_amounts, pod_requests

Obj = dict[str, Any]


def pod_spec(**requests: str) -> Obj:
    return {"resources": {"requests": requests}}


def sidecar(**requests: str) -> Obj:
    return {**pod_spec(**requests), "restartPolicy": "Always"}


# the spec of a pod -> what it asks for
CASES: list[Case[Obj, dict[str, str]]] = [
    Case("nothing", {"containers": [{}]}, {}),
    Case("zero is nothing", {"containers": [pod_spec(cpu="0")]}, {}),
    Case(
        "containers run beside each other",
        {"containers": [pod_spec(cpu="1", memory="1Gi"), pod_spec(cpu="500m")]},
        {"cpu": "1500m", "memory": "1Gi"},
    ),
    Case(
        "init containers run one after another, and before",
        {
            "initContainers": [pod_spec(cpu="3"), pod_spec(cpu="2")],
            "containers": [pod_spec(cpu="1")],
        },
        {"cpu": "3"},
    ),
    Case(
        "each resource for itself",
        {
            "initContainers": [pod_spec(cpu="3", memory="1Mi")],
            "containers": [pod_spec(memory="2Mi")],
        },
        {"cpu": "3", "memory": "2Mi"},
    ),
    Case(
        "a sidecar stays",
        {"initContainers": [sidecar(cpu="1")], "containers": [pod_spec(cpu="1")]},
        {"cpu": "2"},
    ),
    Case(
        "an init container runs beside the sidecars before it, not those after it",
        {
            "initContainers": [sidecar(cpu="1"), pod_spec(cpu="4"), sidecar(cpu="2")],
            "containers": [pod_spec(cpu="1")],
        },
        {"cpu": "5"},
    ),
    Case(
        "sidecars together are more than all else",
        {
            "initContainers": [pod_spec(cpu="1"), sidecar(cpu="2"), sidecar(cpu="2")],
            "containers": [{}],
        },
        {"cpu": "4"},
    ),
    Case(
        "a limit without a request is one",
        {
            "containers": [
                {"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "2"}, "requests": {"cpu": 1}}}
            ]
        },
        {"cpu": "1", "nvidia.com/gpu": "8"},
    ),
    Case(
        "overhead comes on top",
        {"containers": [pod_spec(cpu="1")], "overhead": {"cpu": "250m", "memory": "10Mi"}},
        {"cpu": "1250m", "memory": "10Mi"},
    ),
    Case(
        "what the whole pod requests outranks its containers",
        {
            "containers": [{"resources": {"requests": {"cpu": "4", "nvidia.com/gpu": "1"}}}],
            "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "1"},
        },
        {"cpu": "3", "nvidia.com/gpu": "1"},
    ),
    Case(
        "a limit of the whole pod does not outrank what containers request",
        {"containers": [pod_spec(cpu="1")], "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}},
        {"cpu": "1", "memory": "1Gi"},
    ),
    Case(
        "but one of huge pages does",
        {
            "containers": [{"resources": {"limits": {"hugepages-2Mi": "2Mi"}}}],
            "resources": {"limits": {"hugepages-2Mi": "4Mi"}},
        },
        {"hugepages-2Mi": "4194304"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_pod_requests(case: Case[Obj, dict[str, str]]) -> None:
    """Of each resource the most that is used at any time."""
    pod = decode(Pod, encode({"metadata": {}, "spec": case.given}))

    assert format_amounts(pod_requests(pod.spec)) == case.want


def test_amounts_are_written_as_the_api_server_writes_them() -> None:
    """In order of their names; bytes in powers of two, and parts of one as they are."""
    amounts = {"memory": 3 * 2**30 * 1000, "cpu": 1500, "ephemeral-storage": 1, "nvidia.com/gpu": 0}

    text = msgspec.json.encode(format_amounts(amounts)).decode()

    assert text == '{"cpu":"1500m","ephemeral-storage":"1m","memory":"3Gi","nvidia.com/gpu":"0"}'
