"""What a demo is seen to do: moments of TrainJobs, and of their PodGroups and pods."""

import json
from collections.abc import Mapping

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import Key, Moment
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP, QUEUE
from trainer_kai.api.names import JOBSET_NAME, REPLICATED_JOB

_QUEUE_OF = {"night": "guests", "moe": "team-b"}
_RECORD = '{"why": "default/moe gets its resources: queue guests was over its fair share"}'
_PLACES = json.dumps({"launcher-replica-0": {"nodes": {"n0": 1}, "cause": "anticipated"}})


def trainjob(at_s: float, job: str, *, evicted: str = "", end: str = "") -> Moment:
    """Return a TrainJob as it is from a second on."""
    annotations = {"trainer-kai.dev/evicted-by": evicted} if evicted else {}
    metadata = {"labels": {QUEUE: _QUEUE_OF[job]}, "annotations": annotations}
    status = {"conditions": [{"type": end, "status": "True"}]} if end else {}
    return _moment(at_s, TRAINJOBS, job, metadata, status=status)


def podgroup(
    at_s: float, job: str, reason: str = "", reserved: str = "", stage: str = "1/1"
) -> Moment:
    """Return the PodGroup of a stage."""
    annotations = {"trainer-kai.dev/stage": stage, "trainer-kai.dev/reserved": reserved}
    metadata = {"annotations": annotations, "ownerReferences": [{"name": job}]}
    reasons = [{"reasons": [{"reason": reason, "message": "as it is"}]}] if reason else []
    status = {"schedulingConditions": reasons}
    return _moment(
        at_s, PODGROUPS, f"{job}-{stage[0]}", metadata, spec={"minMember": 1}, status=status
    )


def pod(
    at_s: float,
    name: str,
    phase: str = "Running",
    node: str = "n0",
    notes: Mapping[str, str] | None = None,
) -> Moment:
    """Return a pod, whose name is its TrainJob, its stage and its replicated job."""
    job, stage, role = name.split("-")[:3]
    labels = {JOBSET_NAME: job, QUEUE: _QUEUE_OF[job], REPLICATED_JOB: role}
    metadata = {"labels": labels, "annotations": {PODGROUP: f"{job}-{stage}"} | dict(notes or {})}
    container = {"resources": {"limits": {GPU: "8" if job == "night" else "4"}}}
    spec = {"containers": [container]} | ({"nodeName": node} if node else {})
    return _moment(at_s, PODS, name, metadata, spec=spec, status={"phase": phase})


def whole_run() -> list[Moment]:
    """Return a run on one node: night is evicted for moe, whose launcher has a reserved place."""
    return [
        *(trainjob(1, "night"), podgroup(1, "night"), pod(2, "night-1-node-0")),
        *(trainjob(3, "moe"), podgroup(4, "moe", reserved=_PLACES)),
        trainjob(5, "night", evicted=_RECORD),
        pod(7, "night-1-node-0")._replace(type="DELETED"),
        *(trainjob(7, "night"), podgroup(8, "night", "NoCapacity")),
        *(pod(8, "moe-1-node-0"), pod(14, "moe-1-launcher-0"), podgroup(15, "moe")),
        *(pod(20, "moe-1-launcher-0", "Succeeded"), pod(20, "moe-1-node-0", "Succeeded")),
        trainjob(21, "moe", end="Complete"),
        *(pod(22, "night-1-node-1"), pod(30, "night-1-node-1", "Succeeded")),
        trainjob(31, "night", end="Complete"),
    ]


def _moment(at_s: float, resource: Resource, name: str, metadata: Obj, **fields: Obj) -> Moment:
    obj: Obj = {"metadata": {"name": name} | metadata, "spec": {}, "status": {}} | fields
    return Moment(at_s, int(at_s * 10), "MODIFIED", Key(resource, "default", name), obj)
