"""The simulated autoscaler: how many nodes it adds for which pods."""

from typing import Any

from e2e.autoscaling.simulated import missing_nodes
from e2e.cluster.nodes import GPU, NodeShape, make_nodes

_WAITS = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def pod(gpus: int, conditions: Any = (), node: str = "", **spec: Any) -> dict[str, Any]:
    containers = [{"resources": {"requests": {GPU: str(gpus)}}}]
    return {
        "metadata": {},
        "spec": {"containers": containers, "nodeName": node, **spec},
        "status": {"phase": "Running" if node else "Pending", "conditions": [*conditions]},
    }


def ready_nodes(count: int, gpus: int = 8) -> list[dict[str, Any]]:
    nodes = make_nodes(count, NodeShape(gpus=gpus))
    for it in nodes:
        it["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return nodes


def test_only_marked_pods_count() -> None:
    assert missing_nodes([pod(8), pod(8)], [], 8) == 0
    assert missing_nodes([pod(8, _WAITS), pod(8, _WAITS)], [], 8) == 2
    other = [{**_WAITS[0], "reason": "ExceedsLimit"}]
    assert missing_nodes([pod(8, other)], [], 8) == 0


def test_what_fits_existing_nodes_is_left_out() -> None:
    waiting = [pod(4, _WAITS) for _ in range(4)]
    used = pod(8, node="node-0")

    assert missing_nodes([*waiting, used], ready_nodes(2), 8) == 1
    assert missing_nodes(waiting, ready_nodes(2), 8) == 0
    assert missing_nodes([pod(4, _WAITS, nodeSelector={"a": "b"})], ready_nodes(1), 8) == 1


def test_small_pods_share_a_node_and_too_large_ones_get_none() -> None:
    assert missing_nodes([pod(2, _WAITS) for _ in range(5)], [], 8) == 2
    assert missing_nodes([pod(16, _WAITS)], [], 8) == 0
