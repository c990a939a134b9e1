"""Jobs as they arrive, and what may own them."""

from typing import Any, Final

from tests.webhook.objects import Obj

JOB: Final = {"group": "batch", "version": "v1", "kind": "Job"}
CRON_JOB: Final = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "name": "c",
    "uid": "u",
    "controller": True,
}
JOBSET: Final = {**CRON_JOB, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}


def job(scheduler: str = "kai-scheduler", **parts: Any) -> Obj:
    """Return a Job; *parts* are of its metadata or its spec, `of_pods` are labels of its pods."""
    metadata: Obj = {"name": "job", "namespace": "team"}
    template: Obj = {"metadata": {}, "spec": {"containers": [], "schedulerName": scheduler}}
    if "of_pods" in parts:
        template["metadata"]["labels"] = parts.pop("of_pods")
    obj: Obj = {"metadata": metadata, "spec": {"template": template}}
    for part, value in parts.items():
        is_meta = part in {"labels", "annotations", "ownerReferences", "managedFields"}
        (metadata if is_meta else obj["spec"])[part] = value
    return obj
