"""The objects of the dry runs, and the namespace that they are sent to.

A dry run goes through all of admission and is not stored. The TrainJob of the JobSet does not
exist; the webhook then uses what it knows of the namespace.
"""

from typing import Any, Final

from trainer_kai.api.names import GANG, JOB_INDEX, JOBSET_NAME, JOBSET_UID, QUEUE, REPLICATED_JOB
from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBS, JOBSETS, PODS, TRAINJOBS, Resource
from trainer_kai.cli.commands.doctor.checks.dry_runs import namespace_selectors
from trainer_kai.cli.commands.doctor.checks.webhooks import selects_namespace
from trainer_kai.cli.commands.doctor.facts import (
    InstallationFacts,
    Obj,
    Unread,
    listed,
    nested_field,
)

NAME: Final = "trainer-kai-doctor"
_UID: Final = "00000000-0000-0000-0000-000000000000"
_IMAGE: Final = "trainer-kai.invalid/doctor"  # never pulled
_INVALID_QUEUE: Final = "No_Queue"  # a valid label value, but an invalid name of a Queue
_SUFFIX: Final = "doctor"


def dry_run_namespace(facts: InstallationFacts, context: str) -> str:
    """Return a namespace that takes part, preferably that of the context; "" for none."""
    if isinstance(facts.namespaces, Unread) or isinstance(facts.configurations, Unread):
        return context
    selectors = namespace_selectors(facts)
    takes_part = {
        it.name
        for it in facts.namespaces
        if not it.deletion_timestamp and all(selects_namespace(one, it.labels) for one in selectors)
    }
    others = sorted(it for it in takes_part if not it.startswith("kube-"))
    return next((it for it in (context, *others) if it in takes_part), "")


def namespace_fault(facts: InstallationFacts, name: str) -> str:
    """Return why dry runs are not possible in a named namespace; "" if they are."""
    if isinstance(facts.namespaces, Unread):
        dry_run = facts.jobset
        refusal = None if isinstance(dry_run, Unread) else dry_run.refusal
        is_gone = refusal is not None and f'namespaces "{name}" not found' in refusal.message
        return f"namespace {name} does not exist" if is_gone else ""
    deletion_times = {it.name: it.deletion_timestamp for it in facts.namespaces}
    if name not in deletion_times:
        return f"namespace {name} does not exist; existing are {listed(sorted(deletion_times), 10)}"
    if deletion_times[name]:
        return f"namespace {name} is being deleted, and accepts no new objects"
    return ""


def jobset(namespace: str) -> dict[str, Any]:
    """Return a JobSet of a TrainJob that does not exist."""
    job = {"parallelism": 1, "completions": 1, "template": {"spec": _pod_spec()}}
    metadata = {"namespace": namespace, "name": NAME, "ownerReferences": [_owner(TRAINJOBS, NAME)]}
    replicated_job = {"name": "node", "replicas": 1, "template": {"spec": job}}
    return {**_kind(JOBSETS), "metadata": metadata, "spec": {"replicatedJobs": [replicated_job]}}


def trainjob(namespace: str, runtime: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": NAME, "labels": {QUEUE: _INVALID_QUEUE}}
    group, kind = CLUSTER_RUNTIMES.group, CLUSTER_RUNTIMES.kind
    reference = {"apiGroup": group, "kind": kind, "name": runtime}
    return {**_kind(TRAINJOBS), "metadata": metadata, "spec": {"runtimeRef": reference}}


def gang_pod(namespace: str) -> dict[str, Any]:
    """Return a pod as JobSet creates it from a template that our webhook has marked."""
    pod = foreign_pod(namespace)
    labels = {
        GANG: _SUFFIX,
        JOBSET_NAME: NAME,
        JOBSET_UID: _UID,
        REPLICATED_JOB: "node",
        JOB_INDEX: "0",
    }
    pod["metadata"] |= {"labels": labels, "ownerReferences": [_owner(JOBS, f"{NAME}-node-0")]}
    return pod


def foreign_pod(namespace: str) -> dict[str, Any]:
    """Return a pod that is not ours; the strictest pod security policies admit it."""
    metadata = {"namespace": namespace, "name": NAME}
    return {**_kind(PODS), "metadata": metadata, "spec": _pod_spec()}


def _kind(resource: Resource[Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _owner(resource: Resource[Any], name: str) -> dict[str, Any]:
    return {**_kind(resource), "name": name, "uid": _UID, "controller": True}


def _pod_spec() -> dict[str, Any]:
    amounts = {"cpu": "1m", "memory": "1Mi"}
    container = {
        "name": "node",
        "image": _IMAGE,
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    profile = {"type": "RuntimeDefault"}
    context = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": profile}
    return {"restartPolicy": "Never", "securityContext": context, "containers": [container]}


def is_for_scheduler(runtime: Obj, name: str) -> bool:
    """Say whether TrainJobs of a runtime are for the scheduler of that name, and reviewed by us."""
    jobs = nested_field(runtime, "spec", "template", "spec", "replicatedJobs") or ()
    path = ("template", "spec", "template", "spec", "schedulerName")
    asked = {nested_field(job, *path) or name for job in jobs}
    groups = nested_field(runtime, "spec", "podGroupPolicy") or {}
    return asked <= {name} and groups.keys() <= {"kaiScheduler"}
