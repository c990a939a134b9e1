"""The jobs of Kubeflow's training operator v1 and of its MPI operator.

All pods of a job start together, unless its scheduling policy or its elastic policy asks for fewer.
The PodGroups have KAI's names: that of a PyTorchJob has the sub-groups master and worker, and one
for each segment of workers; the others have none, since any of their pods count.

An MPIJob may let its launcher wait until the workers are ready. Then the launcher is a sub-group
whose pod comes later: its place is kept, and the workers do not wait for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from trainer_kai.api.kubeflow import KubeflowJob, KubeflowJobSpec, ReplicaSpecs
from trainer_kai.api.names import (
    KUBEFLOW_JOB_NAME,
    KUBEFLOW_JOB_ROLE,
    KUBEFLOW_REPLICA_INDEX,
    KUBEFLOW_REPLICA_TYPE,
    MPI_OPERATOR,
    TRAINING_OPERATOR,
)
from trainer_kai.api.resources import (
    JAX_JOBS,
    MPI_JOBS,
    MPI_V1_JOBS,
    PYTORCH_JOBS,
    TF_JOBS,
    XGBOOST_JOBS,
    Resource,
)
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.workloads.roles import (
    MAIN,
    ObjectState,
    PodRole,
    roles_kind,
    roles_workload,
    segment_size,
    segment_topology,
    segments,
    topology_of,
)
from trainer_kai.policy.workloads.workload import (
    PodGroupShape,
    PodPlace,
    RolePaths,
    SubGroupShape,
    Workload,
    WorkloadKind,
    suspension_changed_at,
)

_Shapes: TypeAlias = Callable[[KubeflowJob, Sequence[PodRole], list[Finding]], PodGroupShape]

_MANAGED_HERE: Final = frozenset({"", TRAINING_OPERATOR, MPI_OPERATOR})
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_SUSPEND: Final = ("spec", "runPolicy", "suspend")
_MIN_AVAILABLE: Final = "spec.runPolicy.schedulingPolicy.minAvailable"
_MIN_REPLICAS: Final = "spec.elasticPolicy.minReplicas"
_MASTER: Final = "master"
_WORKER: Final = "worker"
_LAUNCHER: Final = "launcher"


def kubeflow_pod_place(labels: Mapping[str, str]) -> PodPlace:
    role = labels.get(KUBEFLOW_REPLICA_TYPE) or labels.get(KUBEFLOW_JOB_ROLE, "")
    return PodPlace(role.lower(), labels.get(KUBEFLOW_REPLICA_INDEX, "0"), (0, 0))


def _any_pods(job: KubeflowJob, roles: Sequence[PodRole], faults: list[Finding]) -> PodGroupShape:
    pods = sum(role.pods for role in roles)
    return PodGroupShape(MAIN, _names(roles), _minimum(job, pods, pods, faults))


def _pytorch(job: KubeflowJob, roles: Sequence[PodRole], faults: list[Finding]) -> PodGroupShape:
    pods = sum(role.pods for role in roles)
    elastic = _requested(job.spec.elastic_policy.min_replicas, _MIN_REPLICAS, pods, faults)
    minimum = _minimum(job, elastic or pods, pods, faults)
    subgroups: list[SubGroupShape] = []
    for role in sorted(roles):  # the master first
        topology = topology_of(role.template.metadata.annotations, job.metadata.annotations)
        counted = min(role.pods, max(minimum, 0))
        minimum -= counted
        size = _segment_size(role, faults) if role.name == _WORKER else None
        whole = SubGroupShape(role.name, counted, role.name, 0, role.pods, topology=topology)
        subgroups += [whole] if size is None else _segmented(whole, role, size, job)
    return PodGroupShape(
        MAIN, _names(roles), sum(it.minimum for it in subgroups if it.job), tuple(subgroups)
    )


def _segment_size(role: PodRole, faults: list[Finding]) -> int | None:
    path = "spec.pytorchReplicaSpecs.Worker.template.metadata"
    return segment_size(role, [(path, role.template.metadata.annotations)], faults)


def _segmented(
    whole: SubGroupShape, role: PodRole, size: int, job: KubeflowJob
) -> Iterator[SubGroupShape]:
    """Yield the segments of the workers; those that no minimum counts start on their own."""
    topology = segment_topology(role.template.metadata.annotations, job.metadata.annotations)
    parts = [*segments(role, role.name, size, topology)]
    yield whole._replace(minimum=len(parts), job="")
    for part in parts:
        is_counted = part.first < whole.minimum
        yield part._replace(parent=whole.name, minimum=part.minimum if is_counted else 0)


def _mpi(job: KubeflowJob, roles: Sequence[PodRole], faults: list[Finding]) -> PodGroupShape:
    shape = _any_pods(job, roles, faults)
    if job.spec.launcher_creation_policy != "WaitForWorkersReady":
        return shape
    launchers = sum(role.pods for role in roles if role.name == _LAUNCHER)
    subgroups = (
        SubGroupShape(role.name, role.pods, role.name, 0, role.pods, is_later=True)
        if role.name == _LAUNCHER
        else SubGroupShape(role.name, max(shape.min_pods - launchers, 0), role.name, 0, role.pods)
        for role in roles
    )
    return shape._replace(subgroups=tuple(subgroups))


def _minimum(job: KubeflowJob, default: int, pods: int, faults: list[Finding]) -> int:
    requested = job.spec.run_policy.scheduling_policy.min_available
    return _requested(requested, _MIN_AVAILABLE, pods, faults) or default


def _requested(number: int | None, path: str, pods: int, faults: list[Finding]) -> int | None:
    if number is None:
        return None
    if number > pods:
        message = f"{number} is more than the {pods} pods of all roles. {pods} is used"
        faults.append(Finding(path, message))
    elif number < 1:
        faults.append(Finding(path, f"ignored: {number} must be 1 or more"))
        return None
    return min(number, pods)


def _roles(
    specs: ReplicaSpecs, field: str, needed: tuple[str, ...], faults: list[Finding]
) -> tuple[PodRole, ...]:
    """Return the roles that have pods; the operators refuse a job without a role that they need."""
    for name in needed:
        if not any(it.lower() == name for it in specs):
            message = f"has no {name.capitalize()}, so the operator refuses the job"
            faults.append(Finding(field, message, blocks=True))
    pods = {name: 1 if it.replicas is None else it.replicas for name, it in specs.items()}
    return tuple(
        PodRole(
            name.lower(),
            pods[name],
            it.template,
            RolePaths(f"{field}.{name}.template", f"{field}.{name}.replicas"),
        )
        for name, it in specs.items()
        if pods[name] > 0
    )


def _names(roles: Sequence[PodRole]) -> tuple[str, ...]:
    return tuple(role.name for role in roles)


def _kind(
    resource: Resource[KubeflowJob],
    specs_of: Callable[[KubeflowJobSpec], ReplicaSpecs],
    field: str,
    needed: tuple[str, ...] = (),
    shape: _Shapes = _any_pods,
) -> WorkloadKind:
    def adapt(job: KubeflowJob) -> Workload:
        faults: list[Finding] = []
        run = job.spec.run_policy
        roles = _roles(specs_of(job.spec), field, needed, faults)
        ended = (it for it in job.status.conditions if it.type in _TERMINAL and it.status == "True")
        state = ObjectState(
            is_suspended=run.suspend,
            is_finished=any(ended),
            is_managed_here=run.managed_by in _MANAGED_HERE,
            suspension_changed_at=suspension_changed_at(job.status.conditions),
        )
        shapes = (shape(job, roles, faults),) if roles else ()
        return roles_workload(kind, job.metadata, roles, shapes, state, faults)

    kind = roles_kind(
        resource,
        adapt,
        kubeflow_pod_place,
        name_label=KUBEFLOW_JOB_NAME,
        path=field,
        suspend_path=_SUSPEND,
    )
    return kind


_mpi_kind = partial(
    _kind,
    specs_of=lambda spec: spec.mpi_replica_specs,
    field="spec.mpiReplicaSpecs",
    needed=(_LAUNCHER, _WORKER),
    shape=_mpi,
)
PYTORCH_KIND: Final = _kind(
    PYTORCH_JOBS,
    lambda spec: spec.pytorch_replica_specs,
    "spec.pytorchReplicaSpecs",
    shape=_pytorch,
)
TF_KIND: Final = _kind(TF_JOBS, lambda spec: spec.tf_replica_specs, "spec.tfReplicaSpecs")
XGBOOST_KIND: Final = _kind(
    XGBOOST_JOBS, lambda spec: spec.xgb_replica_specs, "spec.xgbReplicaSpecs", (_MASTER, _WORKER)
)
JAX_KIND: Final = _kind(
    JAX_JOBS, lambda spec: spec.jax_replica_specs, "spec.jaxReplicaSpecs", (_WORKER,)
)
MPI_KIND: Final = _mpi_kind(MPI_JOBS)
MPI_V1_KIND: Final = _mpi_kind(MPI_V1_JOBS)
