"""The JobSet that Trainer builds from a TrainJob and its runtime, with the fields that we read.

It follows Trainer 2.3.0, surprises included, and the defaults that JobSet sets. Images, commands
and environments are left out. Reserved variables, initializers and the length of names are not
checked: Trainer's own admission does that.

Trainer itself copies no labels and annotations of a TrainJob: admission does, and a value that the
JobSet has already stays. Shares of GPUs are requested by annotations of pods, so these are copied
to the pod templates of the replicatedJobs that train: those to which Trainer gives
`resourcesPerNode`, and the workers of MPI. A launcher of MPI that is no worker has no use for a
GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.gpu_requests import SHARE_REQUESTS, share_request
from trainer_kai.api.jobset import (
    FailurePolicy,
    JobSet,
    JobSetSpec,
    ReplicatedJob,
    VolumeClaimPolicy,
)
from trainer_kai.api.meta import Meta, OwnerReference, TemplateMeta
from trainer_kai.api.names import (
    ANCESTOR_STEP,
    BATCH_MIN_MEMBER,
    COSCHEDULING_GROUP,
    GPU_CONTAINER,
    NODE_POOL,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    SEGMENT_PREFERRED,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    SKIP_PODGROUPER,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    TRAINJOB_CONTROLLER,
    VOLCANO_GROUP,
)
from trainer_kai.api.pod import Container, ContainerPort, PodSpec, PodTemplate, Resources, Volume
from trainer_kai.api.quantity import Quantity, canonical_quantity
from trainer_kai.api.resources import TRAINJOBS
from trainer_kai.api.trainjob import MLPolicy, Runtime, TrainJob
from trainer_kai.errors import FieldError, FieldWarning
from trainer_kai.policy.expand.runtime_patches import apply_runtime_patches, runtime_patch_faults
from trainer_kai.policy.start_order import INITIALIZERS, pods_at_once

CARRIED_LABELS: Final = (PRIORITY_CLASS_NAME, PREEMPTIBILITY, NODE_POOL)
CARRIED_ANNOTATIONS: Final = (
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    BATCH_MIN_MEMBER,
    PREEMPTION_DELAY,
    STALENESS_GRACE_PERIOD,
    SKIP_PODGROUPER,
)
SEGMENTS: Final = (SEGMENT_SIZE, SEGMENT_REQUIRED, SEGMENT_PREFERRED)
CARRIED_TO_PODS: Final = (*SHARE_REQUESTS, *SEGMENTS)

_TRAINER: Final = "trainer"  # the label value of the step that trains
_NODE: Final = "node"  # the container that trains, and with MPI the replicatedJob of the workers
_LAUNCHER: Final = "launcher"
_PORT: Final = ContainerPort(container_port=29500)
_MPI_VOLUMES: Final = {_NODE: ("mpi-ssh-auth",), _LAUNCHER: ("mpi-ssh-auth", "mpi-hostfile")}


class Expansion(NamedTuple):
    jobset: JobSet
    faults: tuple[FieldError, ...] = ()  # with paths of the TrainJob


def expand(job: TrainJob, runtime: Runtime) -> Expansion:
    template = apply_runtime_patches(runtime.spec.template, job.spec.runtime_patches)
    jobs = template.spec.replicated_jobs
    counts = _counts(jobs, job, runtime.spec.ml_policy)
    port_index = _port_index(jobs, job, runtime.spec.ml_policy)
    built = tuple(
        _built(each, counts[i], job, runtime, has_port=i == port_index)
        for i, each in enumerate(jobs)
    )
    spec = replace(
        template.spec,
        replicated_jobs=built,
        failure_policy=_failure_policy(template.spec.failure_policy),
        suspend=job.spec.suspend,
        volume_claim_policies=tuple(map(_claims, template.spec.volume_claim_policies)),
    )
    jobset = JobSet(metadata=_metadata(job, template.metadata), spec=spec)
    return Expansion(jobset, tuple(_faults(job, runtime, spec)))


def num_nodes_index(job: TrainJob, runtime: Runtime) -> int | None:
    trainer = job.spec.trainer
    if trainer is None or trainer.num_nodes is None:
        return None
    return _num_nodes_index(runtime.spec.template.spec.replicated_jobs, runtime.spec.ml_policy)


def gets_resources_per_node(job: ReplicatedJob, place: int, runtime: Runtime) -> bool:
    at = _node_container_index(job.template.spec.template.spec.containers)
    return _gets_resources_per_node(job, runtime.spec.ml_policy) and place == at


def _metadata(job: TrainJob, template: TemplateMeta) -> Meta:
    owner = OwnerReference(
        api_version=TRAINJOBS.api_version,
        kind=TRAINJOBS.kind,
        name=job.metadata.name,
        uid=job.metadata.uid,
        controller=True,
    )
    return Meta(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        labels=template.labels,
        annotations=template.annotations,
        owner_references=(owner,),
    )


def _failure_policy(policy: FailurePolicy | None) -> FailurePolicy | None:
    if policy is None or policy.restart_strategy:
        return policy
    return replace(policy, restart_strategy="Recreate")


def _claims(policy: VolumeClaimPolicy) -> VolumeClaimPolicy:
    return VolumeClaimPolicy(
        retention_policy={"whenDeleted": "Delete", **(policy.retention_policy or {})}
    )


def _step(job: ReplicatedJob) -> str:
    return job.template.metadata.labels.get(ANCESTOR_STEP, "")


def _counts(jobs: Sequence[ReplicatedJob], job: TrainJob, policy: MLPolicy | None) -> list[int]:
    """Only a TrainJob can request zero."""
    counts = []
    for each in jobs:
        own = each.template.spec.parallelism
        if policy is not None and _step(each) == _TRAINER:
            own = policy.num_nodes
        counts.append(1 if own is None else max(own, 1))
    scaled_index = _num_nodes_index(jobs, policy)
    trainer = job.spec.trainer
    if scaled_index is not None and trainer is not None and trainer.num_nodes is not None:
        as_node = _launcher_is_node(policy)
        counts[scaled_index] = max(trainer.num_nodes - 1, 1) if as_node else trainer.num_nodes
    return counts


def _num_nodes_index(jobs: Sequence[ReplicatedJob], policy: MLPolicy | None) -> int | None:
    if policy is not None and policy.mpi is not None:
        return next((i for i, job in enumerate(jobs) if job.name == _NODE), None)
    return _first_trainer(jobs)


def _first_trainer(jobs: Sequence[ReplicatedJob]) -> int | None:
    return next((i for i, job in enumerate(jobs) if _step(job) == _TRAINER), None)


def _launcher_is_node(policy: MLPolicy | None) -> bool:
    return policy is not None and policy.mpi is not None and policy.mpi.run_launcher_as_node


def _port_index(
    jobs: Sequence[ReplicatedJob], job: TrainJob, policy: MLPolicy | None
) -> int | None:
    if policy is None or job.spec.trainer is None:
        return None
    return _first_trainer(jobs) if policy.torch or policy.jax or policy.xgboost else None


def _built(
    job: ReplicatedJob, count: int, requested: TrainJob, runtime: Runtime, *, has_port: bool
) -> ReplicatedJob:
    spec, policy, name = job.template.spec, runtime.spec.ml_policy, requested.metadata.name
    pod = _with_policy(spec.template.spec, job.name, name, policy)
    trainer = requested.spec.trainer
    if trainer and trainer.resources_per_node and _gets_resources_per_node(job, policy):
        pod = _with_resources(pod, trainer.resources_per_node)
    if has_port:
        pod = _with_port(pod)
    built = replace(
        spec,
        parallelism=count,
        completions=count,
        completion_mode=spec.completion_mode or "Indexed",
        template=PodTemplate(
            metadata=_with_group_metadata(spec.template.metadata, name, runtime),
            spec=_with_canonical_quantities(pod),
        ),
    )
    return replace(
        job,
        replicas=1 if _step(job) in {_TRAINER, *INITIALIZERS} else job.replicas,
        template=replace(job.template, spec=built),
    )


def _with_policy(pod: PodSpec, name: str, trainjob: str, policy: MLPolicy | None) -> PodSpec:
    if policy is None:
        return pod
    volumes = _MPI_VOLUMES.get(name, ()) if policy.mpi else ()
    if policy.flux and name == _NODE:
        entrypoint = f"{trainjob}-flux-entrypoint"
        volumes += ("spack-install", "flux-install", entrypoint, "shared-memory", "flux-curve")
        installer = Container(name="flux-installer")
        pod = replace(pod, init_containers=(*pod.init_containers, installer))
    mounted = {volume.name: volume for volume in pod.volumes}
    mounted |= {volume: Volume(name=volume) for volume in volumes}
    return replace(pod, volumes=tuple(mounted.values()))


def _gets_resources_per_node(job: ReplicatedJob, policy: MLPolicy | None) -> bool:
    if policy is None:
        return False
    return _step(job) == _TRAINER or (_launcher_is_node(policy) and job.name == _NODE)


def _node_container_index(containers: Sequence[Container]) -> int | None:
    return next((i for i, each in enumerate(containers) if each.name == _NODE), None)


def _with_resources(pod: PodSpec, requested: Resources) -> PodSpec:
    """Trainer drops resource claims of both."""
    at = _node_container_index(pod.containers)
    if at is None:
        return pod
    own = pod.containers[at].resources
    resources = Resources(
        requests={**own.requests, **requested.requests}, limits={**own.limits, **requested.limits}
    )
    return _with_container(pod, at, replace(pod.containers[at], resources=resources))


def _with_port(pod: PodSpec) -> PodSpec:
    """Open the port; it replaces the first port that Trainer considers the same."""
    at = _node_container_index(pod.containers)
    if at is None:
        return pod
    ports = list(pod.containers[at].ports)
    same = next((i for i, port in enumerate(ports) if _is_same_port(port, _PORT)), len(ports))
    ports[same : same + 1] = [_PORT]
    return _with_container(pod, at, replace(pod.containers[at], ports=tuple(ports)))


def _is_same_port(one: ContainerPort, other: ContainerPort) -> bool:
    """Trainer considers two ports the same also if both have no name."""
    return one.container_port == other.container_port or one.name == other.name


def _has_duplicates(ports: Sequence[ContainerPort]) -> bool:
    """Say whether Trainer considers any two ports the same, without comparing all pairs."""
    numbers = {port.container_port for port in ports}
    names = {port.name for port in ports}
    return min(len(numbers), len(names)) < len(ports)


def _with_container(pod: PodSpec, at: int, container: Container) -> PodSpec:
    containers = (*pod.containers[:at], container, *pod.containers[at + 1 :])
    return replace(pod, containers=containers)


def _with_group_metadata(metadata: TemplateMeta, trainjob: str, runtime: Runtime) -> TemplateMeta:
    """Add the mark of the PodGroup that Trainer creates for another scheduler."""
    policy = runtime.spec.pod_group_policy
    if policy is not None and policy.coscheduling is not None:
        labels = {**metadata.labels, COSCHEDULING_GROUP: trainjob}
        metadata = replace(metadata, labels=labels)
    if policy is not None and policy.volcano is not None:
        annotations = {**metadata.annotations, VOLCANO_GROUP: trainjob}
        metadata = replace(metadata, annotations=annotations)
    return metadata


def _with_canonical_quantities(pod: PodSpec) -> PodSpec:
    return replace(
        pod,
        containers=_canonical_containers(pod.containers),
        init_containers=_canonical_containers(pod.init_containers),
        overhead=_amounts(pod.overhead),
        resources=_resources(pod.resources) if pod.resources else None,
    )


def _canonical_containers(containers: Sequence[Container]) -> tuple[Container, ...]:
    return tuple(replace(each, resources=_resources(each.resources)) for each in containers)


def _resources(resources: Resources) -> Resources:
    requests, limits = _amounts(resources.requests), _amounts(resources.limits)
    return replace(resources, requests=requests, limits=limits)


def _amounts(amounts: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    return {name: canonical_quantity(quantity) for name, quantity in amounts.items()}


def _faults(job: TrainJob, runtime: Runtime, spec: JobSetSpec) -> Iterator[FieldError]:
    """*spec* is the spec that was built."""
    if job.spec.managed_by not in {"", TRAINJOB_CONTROLLER}:
        message = f"{job.spec.managed_by!r} manages this TrainJob, so Trainer creates no JobSet"
        yield FieldError("spec.managedBy", message)
    if not spec.replicated_jobs:
        message = "the runtime has no replicatedJobs, so no pods are created. Name another runtime"
        yield FieldError("spec.runtimeRef", message)
    for each in spec.replicated_jobs:
        yield from _port_faults(each)
    yield from _trainer_faults(job, runtime.spec.ml_policy, spec.replicated_jobs)
    yield from runtime_patch_faults(runtime.spec.template.spec, job.spec.runtime_patches)


def _port_faults(job: ReplicatedJob) -> Iterator[FieldError]:
    pod = job.template.spec.template.spec
    for container in (*pod.init_containers, *pod.containers):
        if _has_duplicates(container.ports):
            message = (
                f"in the runtime, container {container.name!r} of replicatedJob {job.name!r} has "
                "two ports with the same number or without a name, so the JobSet is refused. Name "
                "all ports"
            )
            yield FieldError("spec.runtimeRef", message)


def _trainer_faults(
    job: TrainJob, policy: MLPolicy | None, jobs: Sequence[ReplicatedJob]
) -> Iterator[FieldError]:
    trainer = job.spec.trainer
    if trainer is None:
        if policy and policy.flux:
            message = "must be set: Trainer fails without it if the runtime uses Flux"
            yield FieldError("spec.trainer", message)
        return
    if trainer.num_nodes is not None:
        yield from _node_faults(trainer.num_nodes, policy, jobs)
    receivers = [each for each in jobs if _gets_resources_per_node(each, policy)]
    pods = [each.template.spec.template.spec for each in receivers]
    if trainer.resources_per_node and all(
        _node_container_index(pod.containers) is None for pod in pods
    ):
        message = "has no effect: the runtime has no mlPolicy, or no container"
        message += f" {_NODE!r} in a replicatedJob with the label {ANCESTOR_STEP}={_TRAINER}"
        yield FieldWarning("spec.trainer.resourcesPerNode", message)


def _node_faults(
    nodes: int, policy: MLPolicy | None, jobs: Sequence[ReplicatedJob]
) -> Iterator[FieldError]:
    path = "spec.trainer.numNodes"
    as_node = _launcher_is_node(policy)
    if as_node and nodes > 1 and not {job.name for job in jobs} >= {_NODE, _LAUNCHER}:
        message = f"must be 1: the runtime lacks replicatedJob {_NODE!r} or {_LAUNCHER!r}"
        yield FieldError(path, f"{message}, and the TrainJob is refused")
    elif _num_nodes_index(jobs, policy) is None and not (as_node and nodes == 1):
        mpi = policy is not None and policy.mpi is not None
        what = f"named {_NODE!r}" if mpi else f"with the label {ANCESTOR_STEP}={_TRAINER}"
        yield FieldWarning(path, f"has no effect: the runtime has no replicatedJob {what}")


def launcher_trains(policy: MLPolicy | None) -> bool:
    """Say whether the launcher of a runtime is one of its nodes; without MPI there is none."""
    return policy is None or policy.mpi is None or policy.mpi.run_launcher_as_node


def carried_to_pods(
    jobs: Sequence[ReplicatedJob], annotations: Mapping[str, str], *, with_launcher: bool = True
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield each replicatedJob with the annotations of the TrainJob that its pods get.

    A template that requests a share itself gets none, and one with a segment size no segments, nor
    does a single pod. If no container is named it is the one that trains, to which
    `resourcesPerNode` applies as well.
    """
    shares, segments = _selected(annotations, SHARE_REQUESTS), _selected(annotations, SEGMENTS)
    workers = sum(job.name == _NODE for job in jobs)
    for i, job in enumerate(jobs if shares or segments else ()):
        template = job.template.spec.template
        own, step = template.metadata.annotations, job.template.metadata.labels.get(ANCESTOR_STEP)
        is_launcher = step == _TRAINER and job.name != _NODE and workers > 0
        is_worker = job.name == _NODE and step not in INITIALIZERS
        trains = with_launcher if is_launcher else (step == _TRAINER or is_worker)
        if not trains:
            continue
        given = {} if share_request(own) else _with_container_name(shares, template.spec)
        if SEGMENT_SIZE not in own and pods_at_once(job) > 1:
            given = {**given, **segments}
        added = {name: it for name, it in given.items() if name not in own}
        if added:
            yield i, added


def _with_container_name(shares: Mapping[str, str], pod: PodSpec) -> Mapping[str, str]:
    names = [it.name for it in pod.containers]
    default = {GPU_CONTAINER: _NODE} if shares and _NODE in names[1:] else {}
    return {**default, **shares}


def requested_of_pods(trainjob: Mapping[str, str], jobset: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations for the pods: the runtime may have segments on its JobSet."""
    return {**trainjob, **_selected(jobset, SEGMENTS)}


def with_carried_metadata(
    jobset: JobSet,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    with_launcher: bool = True,
) -> JobSet:
    meta = jobset.metadata
    jobs = list(jobset.spec.replicated_jobs)
    requested = requested_of_pods(annotations, meta.annotations)
    for i, added in carried_to_pods(jobs, requested, with_launcher=with_launcher):
        jobs[i] = _with_pod_annotations(jobs[i], added)
    return replace(
        jobset,
        spec=replace(jobset.spec, replicated_jobs=tuple(jobs)),
        metadata=replace(
            meta,
            labels={**_selected(labels, CARRIED_LABELS), **meta.labels},
            annotations={**_selected(annotations, CARRIED_ANNOTATIONS), **meta.annotations},
        ),
    )


def _with_pod_annotations(job: ReplicatedJob, added: Mapping[str, str]) -> ReplicatedJob:
    spec = job.template.spec
    meta = spec.template.metadata
    meta = replace(meta, annotations={**meta.annotations, **added})
    pods = replace(spec.template, metadata=meta)
    return replace(job, template=replace(job.template, spec=replace(spec, template=pods)))


def _selected(source: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
    return {name: source[name] for name in names if name in source}
