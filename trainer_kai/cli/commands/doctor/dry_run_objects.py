"""The objects of the dry runs, and the namespace that they are sent to.

A dry run goes through all of admission and is not stored. The TrainJob of the JobSet does not
exist; the webhook then uses what it knows of the namespace.
"""

from typing import Any, Final

from trainer_kai.api.names import (
    GANG,
    JOB_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    QUEUE,
    REPLICATED_JOB,
)
from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBS, JOBSETS, PODS, TRAINJOBS
from trainer_kai.cli.commands.doctor.checks.dry_runs import namespace_selectors
from trainer_kai.cli.commands.doctor.checks.webhooks import selects_namespace
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, Obj, listed, nested_field
from trainer_kai.cli.commands.doctor.finding import Unread


def dry_run_namespace(facts: InstallationFacts, context: str) -> str:
    """Return a namespace that takes part, preferably that of the context; "" for none."""
    if isinstance(facts.namespaces, Unread) or isinstance(facts.configurations, Unread):
        return context
    selectors = namespace_selectors(facts)
    by_name = {it.name: it.labels for it in facts.namespaces if not it.deletion_timestamp}
    names = [context, *sorted(it for it in by_name if not it.startswith("kube-"))]
    candidates = (
        it
        for it in names
        if it in by_name and all(selects_namespace(one, by_name[it]) for one in selectors)
    )
    return next(candidates, "")


def namespace_fault(facts: InstallationFacts, name: str) -> str:
    """Return why dry runs are not possible in a named namespace; "" if they are."""
    if isinstance(facts.namespaces, Unread):
        dry_run = facts.jobset
        refusal = None if isinstance(dry_run, Unread) else dry_run.refusal
        is_gone = refusal is not None and f'namespaces "{name}" not found' in refusal.message
        return f"namespace {name} does not exist" if is_gone else ""
    by_namespace = {it.name: it for it in facts.namespaces}
    if name not in by_namespace:
        return f"namespace {name} does not exist; existing are {listed(sorted(by_namespace), 10)}"
    if by_namespace[name].deletion_timestamp:
        return f"namespace {name} is being deleted, and accepts no new objects"
    return ""


NAME: Final = "trainer-kai-doctor"
_UID: Final = "00000000-0000-0000-0000-000000000000"
_IMAGE: Final = "trainer-kai.invalid/doctor"  # never pulled
_INVALID_QUEUE: Final = "No_Queue"  # a valid label value, but an invalid name of a Queue
_SUFFIX: Final = "doctor"


def jobset(namespace: str) -> dict[str, Any]:
    """Return a JobSet of a TrainJob that does not exist."""
    owner = {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "name": NAME,
        "uid": _UID,
        "controller": True,
    }
    job = {"parallelism": 1, "completions": 1, "template": {"spec": _pod_spec("Never")}}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {"namespace": namespace, "name": NAME, "ownerReferences": [owner]},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]},
    }


def trainjob(namespace: str, runtime: str) -> dict[str, Any]:
    """Return a TrainJob with an invalid queue."""
    runtime_ref = {
        "apiGroup": CLUSTER_RUNTIMES.group,
        "kind": CLUSTER_RUNTIMES.kind,
        "name": runtime,
    }
    return {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"namespace": namespace, "name": NAME, "labels": {QUEUE: _INVALID_QUEUE}},
        "spec": {"runtimeRef": runtime_ref},
    }


def is_for_scheduler(runtime: Obj, name: str) -> bool:
    """Say whether TrainJobs of a runtime are for the scheduler of that name, and reviewed by us."""
    jobs = nested_field(runtime, "spec", "template", "spec", "replicatedJobs") or ()
    path = ("template", "spec", "template", "spec", "schedulerName")
    asked = {nested_field(job, *path) or name for job in jobs}
    groups = nested_field(runtime, "spec", "podGroupPolicy") or {}
    return asked <= {name} and groups.keys() <= {"kaiScheduler"}


def gang_pod(namespace: str) -> dict[str, Any]:
    """Return a pod as JobSet creates it from a template that our webhook has marked."""
    pod = foreign_pod(namespace)
    job = f"{NAME}-node-0"
    owner = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": job,
        "uid": _UID,
        "controller": True,
    }
    labels = {
        GANG: _SUFFIX,
        JOBSET_NAME: NAME,
        JOBSET_UID: _UID,
        REPLICATED_JOB: "node",
        JOB_INDEX: "0",
    }
    pod["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    return pod


def foreign_pod(namespace: str) -> dict[str, Any]:
    """Return a pod that is not ours; the strictest pod security policies admit it."""
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"namespace": namespace, "name": NAME},
        "spec": _pod_spec("Never"),
    }


def _pod_spec(restart: str) -> dict[str, Any]:
    closed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    amounts = {"cpu": "1m", "memory": "1Mi"}
    return {
        "restartPolicy": restart,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "node",
                "image": _IMAGE,
                "resources": {"requests": amounts, "limits": amounts},
                "securityContext": closed,
            }
        ],
    }
