"""While a pod is resized in place, the larger of wanted, allocated and actual counts."""

import json
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads import recorded_pods
from tests.trainer_kai.api.template_reading import compact, is_matched, learn
from trainer_kai.api.decode import decode, decode_page
from trainer_kai.api.pod import Pod
from trainer_kai.policy.pods.requests import format_amounts, pod_requests

Obj = dict[str, Any]


def held(allocated: str = "", actual: str = "", name: str = "a") -> Obj:
    """Return the status of a container: what the kubelet allocated, and what is in effect."""
    status: Obj = {"name": name}
    if allocated:
        status["allocatedResources"] = {"cpu": allocated, "nvidia.com/gpu": "1"}
    if actual:
        status["resources"] = {"requests": {"cpu": actual}, "limits": {"cpu": "9"}}
    return status


def pod(cpu: str, *statuses: Obj, generation: int = 2, **status: Any) -> Obj:
    container = {"name": "a", "resources": {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": generation},
        "spec": {"containers": [container], "nodeName": "n0", "schedulerName": "kai-scheduler"},
        "status": {"phase": "Running", "containerStatuses": [*statuses], **status},
    }


def pending(reason: str) -> list[Obj]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason}]


WHOLE = pod("1", allocatedResources={"cpu": "3"}, resources={"requests": {"cpu": "2"}})
WHOLE["spec"]["resources"] = {"requests": {"cpu": "1"}}
SIDECAR = pod("1", held("1"), initContainerStatuses=[held("4", name="s")])
SIDECAR["spec"]["initContainers"] = [
    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}
]
LIMIT = pod("1", held("2"))
LIMIT["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "5"}}

# a pod -> the CPU that counts
SIZES: list[Case[Obj, str]] = [
    Case("not changed since it was created", pod("1", held("8", "8"), generation=1), "1"),
    Case("shrunk, and the kubelet has not begun", pod("1", held("8", "8")), "8"),
    Case("shrunk, and the container still has it", pod("1", held("1", "8")), "8"),
    Case("shrunk and done", pod("1", held("1", "1")), "1"),
    Case("grown, and the kubelet waits", pod("8", held("1"), conditions=pending("Deferred")), "8"),
    Case("more than the node has", pod("8", held("1"), conditions=pending("Infeasible")), "1"),
    Case("infeasible, and nothing is held", pod("8", conditions=pending("Infeasible")), "8"),
    Case("another container", pod("1", held("8", name="b")), "1"),
    Case("a sidecar", SIDECAR, "5"),
    Case("requests of the whole pod", WHOLE, "3"),
    Case("a limit that stands for the request", LIMIT, "5"),
    Case("a status that is no quantity", pod("1", held("much")), "1"),
]


@pytest.mark.parametrize("case", SIZES, ids=ids)
def test_the_largest_counts(case: Case[Obj, str]) -> None:
    """In an event and in a page, of whatever order of fields."""
    (in_page,) = decode_page(Pod, compact({"items": [case.given], "metadata": {}}).encode()).items
    read = decode(Pod, compact(case.given).encode())

    assert read == in_page
    assert format_amounts(pod_requests(read.spec))["cpu"] == case.want
    assert read.spec.node_name == "n0"


def test_a_sibling_that_is_read_by_likeness() -> None:
    """It has the spec of its siblings again, and the kubelet still has to take away."""
    text = recorded_pods.RUNNING
    first, shrunk = (json.loads(recorded_pods.similar_pod(text, 4, it)) for it in range(2))
    learn(compact(first))
    name = shrunk["spec"]["containers"][0]["name"]
    shrunk["metadata"]["generation"] = 3
    shrunk["status"]["containerStatuses"] = [held("8", name=name)]

    assert is_matched(compact(shrunk))
    read = decode(Pod, compact(shrunk).encode())
    assert format_amounts(pod_requests(read.spec))["cpu"] == "8"
    assert "cpu" not in pod_requests(decode(Pod, compact(first).encode()).spec)
