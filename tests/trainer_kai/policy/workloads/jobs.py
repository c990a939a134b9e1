"""Jobs of users as admission leaves them, and what they are as workloads."""

from typing import Any

from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import Job
from trainer_kai.api.names import ADMITTED
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.workload import Workload

KAI = "kai-scheduler"


def job(**parts: Any) -> Job:
    """Return an admitted Job; *parts* are of its metadata, its spec or its status."""
    meta: Any = {"name": "train", "namespace": "team", "uid": "1-2-3"}
    meta["annotations"] = {ADMITTED: "v1", **parts.pop("annotations", {})}
    template = {"metadata": {"labels": parts.pop("of_pods", {})}, "spec": {"schedulerName": KAI}}
    spec: Any = {"template": template}
    obj: Any = {"metadata": meta, "spec": spec, "status": parts.pop("status", {})}
    for part, value in parts.items():
        in_meta = part in {"labels", "ownerReferences", "deletionTimestamp"}
        (meta if in_meta else spec)[part] = value
    return decode(Job, encode(obj))


def workload(**parts: Any) -> Workload:
    found = job_workload(job(**parts))
    assert found is not None
    return found
