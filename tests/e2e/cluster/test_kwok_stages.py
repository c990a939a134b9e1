"""What pods and volumes do: the stages given to KWOK, judged by a reading of their selectors."""

import itertools
import re
from collections.abc import Collection
from typing import Any

from e2e.cluster.gpu_devices import RESERVATIONS
from e2e.cluster.kwok_stages import (
    FAIL_SECONDS,
    READY_SECONDS,
    REFUSING_NODES,
    RUN_SECONDS,
    SILENT_NODES,
    all_stages,
)
from e2e.cluster.resources import Obj
from tests.support.cluster_layout import KWOK

ANNOTATED = (READY_SECONDS, RUN_SECONDS, FAIL_SECONDS)
IS_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
STAGES = {stage["metadata"]["name"]: stage for stage in all_stages(KWOK)}
POD_STAGES = {
    name: stage for name, stage in STAGES.items() if stage["spec"]["resourceRef"]["kind"] == "Pod"
}


def pod(
    phase: str,
    annotated: Collection[str] = (),
    *,
    ready: str | None = None,
    deleting: bool = False,
    namespace: str = "default",
    node: str = "node-0",
) -> Obj:
    """Return a pod in one situation; *ready* is the status of its condition, if it has one."""
    annotations = dict.fromkeys(annotated, "1s")
    metadata: Obj = {"namespace": namespace, "annotations": annotations}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Initialized", "status": "True"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    status = {"phase": phase, "conditions": conditions}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": status}


SITUATIONS = [
    pod(phase, told, ready=ready, deleting=deleting, namespace=namespace, node=node)
    for count in range(len(ANNOTATED) + 1)
    for told in itertools.combinations(ANNOTATED, count)
    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    for ready in (None, "False", "True")
    for deleting in (False, True)
    for namespace in ("default", RESERVATIONS)
    for node in ("node-0", *REFUSING_NODES, *SILENT_NODES)
]


def test_no_two_stages_match_the_same_pod() -> None:
    """KWOK draws among the stages that match, so chance would decide if there were two."""
    assert len(SITUATIONS) == 8 * 5 * 3 * 2 * 2 * 5

    drawn = [(found, pod) for pod in SITUATIONS if len(found := stages_of(pod)) > 1]

    assert drawn == []


def test_no_two_stages_share_a_name() -> None:
    """The later of two stages with one name would replace the earlier."""
    assert len(STAGES) == len(all_stages(KWOK))


def stages_of(pod: Obj) -> list[str]:
    """Return the names of the stages that match a pod."""
    return [name for name, stage in POD_STAGES.items() if matches(stage, pod)]


def matches(stage: Obj, pod: Obj) -> bool:
    """Say whether a stage matches a pod, as KWOK reads its selector."""
    assert list(stage["spec"]["selector"]) == ["matchExpressions"]
    return all(holds(e, pod) for e in stage["spec"]["selector"]["matchExpressions"])


def holds(expression: Obj, pod: Obj) -> bool:
    """Judge one expression; one that is not known here is a KeyError, not a guess."""
    found = values_at(expression["key"], pod)
    return {
        "Exists": lambda: bool(found),
        "DoesNotExist": lambda: not found,
        "In": lambda: any(value in expression["values"] for value in found),
        "NotIn": lambda: not any(value in expression["values"] for value in found),
    }[expression["operator"]]()


def values_at(key: str, pod: Obj) -> list[Any]:
    """Return what a selector's key finds in a pod: nothing, or one value."""
    annotation = re.fullmatch(r'\.metadata\.annotations\["(.+)"\]', key)
    known = {
        ".metadata.deletionTimestamp": [pod["metadata"].get("deletionTimestamp")],
        ".metadata.namespace": [pod["metadata"]["namespace"]],
        ".spec.nodeName": [pod["spec"]["nodeName"]],
        ".status.phase": [pod["status"]["phase"]],
        IS_READY: [c["status"] for c in pod["status"]["conditions"] if c["type"] == "Ready"],
    }
    found = [pod["metadata"]["annotations"].get(annotation[1])] if annotation else known[key]
    return [value for value in found if value is not None]
