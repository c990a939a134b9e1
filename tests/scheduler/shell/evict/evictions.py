"""Situations in which the scheduler evicts, and what it wrote about an eviction."""

import json
from typing import Any, Final

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import (
    gang_in,
    group,
    node,
    pod,
    queue,
    queue_with_quota,
    trainjob,
)
from trainer_kai.api.names import EVICTED_BY

_CONSOLIDATION_ON: Final = {"annotations": {"trainer-kai.dev/consolidation": "on"}}


def fill_over_quota(harness: SchedulerHarness, count: int = 2) -> None:
    harness.api.put(
        queue_with_quota("lender", 4), queue_with_quota("borrower", 0), node("a", gpu=4)
    )
    for i in range(4 // count):
        harness.api.put(*gang_in("borrower", f"b{i}", count, at="a"))


def lend_to_trainjob(harness: SchedulerHarness, groups: int = 1) -> None:
    """Let a TrainJob with so many PodGroups run on two GPUs that another queue owns."""
    harness.api.put(
        queue_with_quota("lender", 2),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        *trainjob("x", "a"),
    )
    owners = harness.api.get("PodGroup", "pg-x")["metadata"]["ownerReferences"]
    for i in range(1, groups):
        meta = {"ownerReferences": owners}
        harness.api.put(group(f"pg-x{i}", minMember=1, queue="borrower", meta=meta))


def eviction_record(harness: SchedulerHarness, name: str = "pg-x") -> Any:
    notes = harness.api.get("PodGroup", name)["metadata"].get("annotations", {})
    return json.loads(notes.get(EVICTED_BY, "null"))


def is_suspended(harness: SchedulerHarness) -> bool:
    return bool(harness.api.get("TrainJob", "x")["spec"].get("suspend"))


def follow_suspension(harness: SchedulerHarness) -> None:
    """Let Trainer, JobSet and the Job controller follow."""
    jobset = harness.api.get("JobSet", "x")
    harness.api.put({**jobset, "spec": {**jobset["spec"], "suspend": True}})
    for i in range(2):
        harness.api.delete("Pod", f"x{i}")


def fragmented(harness: SchedulerHarness, annotations: dict[str, Any] | None = None) -> None:
    """Let two TrainJobs of two GPUs run on two nodes of four, and a pod need four on one node."""
    harness.api.put(
        queue("borrower", meta=_CONSOLIDATION_ON if annotations is None else annotations)
    )
    for name in ("m", "n"):
        harness.api.put(node(name, gpu=4), *trainjob(f"t{name}", name))
    preemptor = pod("c0", "c", asks={"nvidia.com/gpu": "4"})
    harness.api.put(group("c", minMember=1, queue="borrower"), preemptor)


def relocated_trainjob(harness: SchedulerHarness) -> str:
    (relocated,) = {it[-2:] for it in harness.api.written() if it.startswith("patch trainjobs")}
    return relocated


def trainjob_events(harness: SchedulerHarness, reason: str) -> list[dict[str, Any]]:
    made = [it for it in harness.api.events if it.get("reason") == reason]
    return [it for it in made if it["involvedObject"]["kind"] == "TrainJob"]
