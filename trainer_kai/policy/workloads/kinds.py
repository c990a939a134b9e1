"""The table of the kinds of workloads: a new kind is a row here, and its adapter."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.meta import Key, OwnerReference
from trainer_kai.api.resources import Resource
from trainer_kai.policy.workloads.job import JOB_KIND
from trainer_kai.policy.workloads.jobset import JOBSET_KIND
from trainer_kai.policy.workloads.kubeflow import (
    JAX_KIND,
    MPI_KIND,
    MPI_V1_KIND,
    PYTORCH_KIND,
    TF_KIND,
    XGBOOST_KIND,
)
from trainer_kai.policy.workloads.leader_worker_set import LWS_KIND
from trainer_kai.policy.workloads.ray import RAY_CLUSTER_KIND, RAY_JOB_KIND, RAY_SERVICE_KIND
from trainer_kai.policy.workloads.workload import (
    ObjectKey,
    OwnerKind,
    PodPlace,
    Suspendable,
    Workload,
    WorkloadKind,
    Workloads,
)

# The pods of a JobSet have the label of their Job too, so that its row comes before that of Jobs.
# An API server serves only one version of MPIJobs; that of the MPI operator comes last, and counts
# where only the kind is known.
KINDS: Final = (
    JOBSET_KIND,
    JOB_KIND,
    PYTORCH_KIND,
    TF_KIND,
    XGBOOST_KIND,
    JAX_KIND,
    MPI_V1_KIND,
    MPI_KIND,
    RAY_CLUSTER_KIND,
    RAY_JOB_KIND,
    RAY_SERVICE_KIND,
    LWS_KIND,
)
OWNERS: Final = tuple(dict.fromkeys(it.owner for it in KINDS if it.owner is not None))
KIND_OF_RESOURCE: Final[Mapping[Resource[Any], WorkloadKind]] = {it.resource: it for it in KINDS}
OWNER_OF_RESOURCE: Final[Mapping[Resource[Any], OwnerKind]] = {it.resource: it for it in OWNERS}
OWNER_OF_KIND: Final[Mapping[str, OwnerKind]] = {it.resource.kind: it for it in OWNERS}
SUSPENDABLE: Final[Mapping[str, Resource[Any]]] = {  # by kind: what suspends workloads
    it.kind: it for it in (*KIND_OF_RESOURCE, *OWNER_OF_RESOURCE)
}

_BY_GROUP_AND_KIND: Final = {(it.resource.group, it.resource.kind): it for it in KINDS}


def watch_name(resource: Resource[Any]) -> str:
    """Return a name for the watch of a resource; both versions of MPIJobs are watched."""
    is_unique = sum(it.resource.plural == resource.plural for it in KINDS) < 2
    return resource.plural if is_unique else f"{resource.plural} {resource.version}"


def kind_of_owner(owner: OwnerReference) -> WorkloadKind | None:
    """Return the kind of the workload that owns an object, whatever its version."""
    return _BY_GROUP_AND_KIND.get((owner.api_version.partition("/")[0], owner.kind))


def kind_of_pod(labels: Mapping[str, str]) -> WorkloadKind | None:
    """Return the kind of the workload that a pod names; the first row counts."""
    for kind in KINDS:
        if kind.name_label in labels:
            return kind
    return None


def pod_place(labels: Mapping[str, str]) -> PodPlace:
    """Return the place of a pod; in files of users the name of its workload may be missing."""
    kind = kind_of_pod(labels)
    return (kind or JOBSET_KIND).pod_place(labels)


def workload_keys(suspendable: ObjectKey) -> Iterator[ObjectKey]:
    """Yield the workloads that an object suspends, if they exist: itself, or those it owns."""
    kinds = (
        it.resource.kind
        for it in KINDS
        if suspendable.kind in (it.resource.kind, it.owner.resource.kind if it.owner else "")
    )
    for kind in dict.fromkeys(kinds):  # there are two versions of MPIJobs
        yield suspendable._replace(kind=kind)


def suspendable_keys(workload: ObjectKey) -> Iterator[ObjectKey]:
    """Yield the objects that may suspend a workload of which only the key is known."""
    yield workload
    for kind in KINDS:
        if kind.resource.kind == workload.kind and kind.owner is not None:
            yield workload._replace(kind=kind.owner.resource.kind)


def named_suspendable(
    workload: Workload | None, owners: Mapping[ObjectKey, Suspendable]
) -> Suspendable | None:
    """Return what suspends a workload, whatever controller manages that: its owner, or itself."""
    if workload is None or not workload.needs_owner:
        return workload.as_suspendable() if workload else None
    owner, key = workload.owner, workload.owner_key
    found = owners.get(key) if key is not None else None
    return found if found and owner and found.metadata.uid == owner.uid else None


def workload_of_job(job: Key, workloads: Workloads) -> tuple[Workload, ReplicatedJob] | None:
    """Return the workload of a Job, and which of its jobs it is; None if none is known."""
    return next(filter(None, (it.workload_of_job(job, workloads) for it in KINDS)), None)
