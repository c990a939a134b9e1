"""How long `trainer-kai list` takes for 5,000 TrainJobs: rows and table, beside their decoding.

The lists are those that the API server would send, in memory: TrainJobs, their JobSets, PodGroups
and the pods on nodes. Half of the TrainJobs wait. The floor is the decoding of the same lists into
the same structs, without rows.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from tests.support.workloads.jobsets import admitted, recorded
from trainer_kai.api.decode import decode_page
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.resources import JOBSETS, TRAINJOBS
from trainer_kai.cli.commands.list.output import as_table
from trainer_kai.cli.commands.list.placed_pods import PlacedPod
from trainer_kai.cli.commands.list.rows import ListedObjects, workload_rows

_TRAINJOBS: Final = 5_000
_PODS_EACH: Final = 4
_ROUNDS: Final = 5
_MOST: Final = 3.0  # times the decoding
_LIMIT: Final = (
    "Queue a has a limit of 16 GPU and uses 16 GPU; the PodGroup requests 8 GPU more. It"
)
_NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)


async def main() -> None:
    """Print the two times; fail if the rows take more than three times the decoding."""
    lists = _lists()
    decoding_s, listed = _best(lambda: _decoded(lists))
    listing_s, text = _best(lambda: _shown(_decoded(lists)))
    rows = text.splitlines()
    assert len(rows) == _TRAINJOBS + 1
    assert sum("limit 16 GPU, uses 16, needs 8" in it for it in rows) == _TRAINJOBS // 2
    assert len(listed.pods) == _TRAINJOBS // 2 * _PODS_EACH
    table = Table("what", "ms", "times the decoding", title=f"{_TRAINJOBS} TrainJobs")
    table.add_row("decode the lists", f"{decoding_s * 1000:.0f}", "1.00")
    table.add_row("list", f"{listing_s * 1000:.0f}", f"{listing_s / decoding_s:.2f}")
    Console().print(table)
    assert listing_s <= _MOST * decoding_s


def _best(work: Callable[[], Any]) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(_ROUNDS):
        began_s = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - began_s)
    return best, result


def _decoded(lists: dict[str, bytes]) -> ListedObjects:
    groups = decode_page(PodGroup, lists["podgroups"]).items
    return ListedObjects(
        workloads={
            TRAINJOBS.kind: decode_page(TRAINJOBS.struct, lists["trainjobs"]).items,
            JOBSETS.kind: decode_page(JOBSETS.struct, lists["jobsets"]).items,
        },
        podgroups=groups,
        all_podgroups=groups,
        classes={},
        pods=decode_page(PlacedPod, lists["pods"]).items,
    )


def _shown(listed: ListedObjects) -> str:
    return as_table(workload_rows(listed), _NOW, with_namespace=True)


def _lists() -> dict[str, bytes]:
    jobset: dict[str, Any] = msgspec.to_builtins(admitted(recorded("torch-distributed")))
    items: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("trainjobs", "jobsets", "podgroups", "pods")
    }
    for number in range(_TRAINJOBS):
        _add(items, f"job-{number:05}", jobset, waits=bool(number % 2))
    return {name: json.dumps({"metadata": {}, "items": it}).encode() for name, it in items.items()}


def _add(
    items: dict[str, list[dict[str, Any]]], name: str, jobset: dict[str, Any], *, waits: bool
) -> None:
    uid = f"uid-{name}"
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": uid,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"kai.scheduler/queue": "a"},
    }
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 4}}
    items["trainjobs"].append({"metadata": meta, "spec": spec, "status": {}})
    owner = {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "name": name, "uid": uid}
    owned = {**jobset["metadata"], **meta, "ownerReferences": [{**owner, "controller": True}]}
    items["jobsets"].append({**jobset, "metadata": owned})
    amounts = {"nvidia.com/gpu": "8", "cpu": "16", "memory": "64Gi"}
    reasons = [{"reason": "ExceedsLimit", "message": _LIMIT}]
    condition = {"reasons": reasons, "lastTransitionTime": "2026-01-01T01:00:00Z"}
    status = {
        "resourcesStatus": {"requested": amounts, **({} if waits else {"allocated": amounts})},
        "schedulingConditions": [condition] if waits else [],
    }
    group = f"pg-{name}-{uid}"
    reference = {**owner, "apiVersion": JOBSETS.api_version, "kind": "JobSet"}
    grouped = {**meta, "name": group, "ownerReferences": [reference]}
    items["podgroups"].append({"metadata": grouped, "spec": {"queue": "a"}, "status": status})
    for index in range(0 if waits else _PODS_EACH):
        notes = {"pod-group-name": group}
        pod = {**meta, "name": f"{name}-{index}", "annotations": notes}
        placed = {"nodeName": f"node-{index}"}
        items["pods"].append({"metadata": pod, "spec": placed, "status": {"phase": "Running"}})
