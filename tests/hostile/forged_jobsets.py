"""JobSets that a tenant writes itself: any controller, admission mark and number."""

from collections.abc import Mapping
from typing import Any

from tests.hostile.objects import TENANT, TENANT_QUEUE
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import ADMITTED, ADMITTED_MARK, GANG, QUEUE

Obj = dict[str, Any]


def rjob(name: str, replicas: int, pods: int, cpu: str = "1", after: str = "") -> Obj:
    """Return a replicatedJob; its pods come later if it begins *after* another one is Ready."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    template = {
        "metadata": {"labels": {GANG: "Main"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
    }
    job = {"parallelism": pods, "completions": pods, "template": template}
    found: Obj = {"name": name, "replicas": replicas, "template": {"spec": job}}
    if after:
        found["dependsOn"] = [{"name": after, "status": "Ready"}]
    return found


def waiting(replicas: int, pods: int, cpu: str = "1") -> list[Obj]:
    """Return a first pod, and so many behind it."""
    return [rjob("first", 1, 1, cpu), rjob("later", replicas, pods, cpu, after="first")]


def trainjob(name: str = "job", uid: str = "uid-of-the-trainjob", namespace: str = TENANT) -> Obj:
    """Return what is known of a TrainJob."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
    }


def jobset(name: str, jobs: list[Obj], of: Mapping[str, Any] | None = None, **meta: Any) -> Obj:
    """Return a JobSet of the tenant, of a TrainJob if one is named."""
    metadata: Obj = {
        "name": name,
        "namespace": TENANT,
        "uid": f"uid-{name}",
        "labels": {QUEUE: TENANT_QUEUE},
        **meta,
    }
    if of is not None:
        owner = {"apiVersion": of["apiVersion"], "kind": of["kind"], "controller": True}
        owner |= {key: of["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": jobs},
    }


def marked(jobs: list[Obj], of: Mapping[str, Any] | None = None) -> JobSet:
    """Return such a JobSet as read, with the mark of admission on it."""
    made = jobset("forged", jobs, of, annotations={ADMITTED: ADMITTED_MARK})
    return decode(JobSet, encode(made))
