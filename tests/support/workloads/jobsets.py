"""JobSets, pods and PodGroups for tests: the recorded ones, as admission leaves them."""

from collections.abc import Mapping
from typing import Any, Final

from tests.support.documents import documents
from tests.support.repository import ROOT
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    CONTROLLER_UID,
    GANG,
    JOB_INDEX,
    JOB_TRACKING,
    JOBSET_NAME,
    JOBSET_UID,
    POD_GROUP,
    QUEUE,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
    SCHEDULER_NAME,
)
from trainer_kai.api.pod import Pod
from trainer_kai.policy.podgroups.grouping import plan_podgroups

_FIXTURES: Final = ROOT / "tests" / "fixtures" / "jobsets"
RUNTIMES: Final = tuple(sorted(folder.name for folder in _FIXTURES.iterdir()))
UID: Final = "11111111-2222-3333-4444-555555555555"


def recorded(runtime: str, nodes: str = "4") -> dict[str, Any]:
    """Return a JobSet as Trainer built it."""
    found: dict[str, Any] = documents(_FIXTURES / runtime / f"{nodes}-nodes.yaml")[1]
    return found


def jobset(obj: Mapping[str, Any]) -> JobSet:
    """Read a JobSet."""
    return decode(JobSet, encode(obj))


def admitted(obj: dict[str, Any], queue: str = "team-a", *, staged: bool = False) -> JobSet:
    """Return a JobSet as our webhook lets it in."""
    meta = obj["metadata"]
    meta["uid"] = UID
    meta.setdefault("annotations", {})[ADMITTED] = ADMITTED_MARK
    meta.setdefault("labels", {})[QUEUE] = queue
    for job in obj["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        template["spec"].setdefault("schedulerName", SCHEDULER_NAME)
    plan = plan_podgroups(jobset(obj), SCHEDULER_NAME, staged=staged)
    for job in obj["spec"]["replicatedJobs"]:
        podgroup = plan.podgroup_of(job["name"])
        if podgroup is not None:
            metadata = job["template"]["spec"]["template"].setdefault("metadata", {})
            metadata.setdefault("labels", {})[GANG] = podgroup.suffix
    return jobset(obj)


def job_uid(replicated_job: str, index: int = 0) -> str:
    """Return the uid of a Job."""
    return f"job-{replicated_job}-{index}"


def pod(name: str, replicated_job: str, **fields: Any) -> Pod:
    """Return a pod of the JobSet `job`; keywords are phase, node, group, attempt, uid, going."""
    labels = {
        GANG: "Main",
        JOBSET_NAME: "job",
        JOBSET_UID: UID,
        REPLICATED_JOB: replicated_job,
        JOB_INDEX: "0",
        RESTART_ATTEMPT: str(fields.get("attempt", 0)),
        CONTROLLER_UID: job_uid(replicated_job),
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"job-{replicated_job}-0",
        "uid": job_uid(replicated_job),
        "controller": True,
    }
    group = fields.get("group", "")
    metadata = {
        "namespace": "default",
        "name": name,
        "uid": fields.get("uid", f"uid-{name}"),
        "labels": labels,
        "annotations": {POD_GROUP: group} if group else {},
        "ownerReferences": [owner],
        "finalizers": [JOB_TRACKING],
        "deletionTimestamp": "2026-01-01T00:00:00Z" if fields.get("going") else None,
    }
    spec = {"nodeName": fields.get("node", "")}
    status = {"phase": fields.get("phase", "Pending")}
    return decode(Pod, encode({"metadata": metadata, "spec": spec, "status": status}))
