"""Ray clusters, and the jobs and services with a cluster of their own.

A PodGroup has KAI's sub-groups: headgroup, and one for each worker group. The cluster of a RayJob
or RayService is a part of that: its pods are members of the PodGroup of their top owner, which
remains when a suspension deletes the cluster. The pod that submits a RayJob exists only when the
cluster runs, so it is a PodGroup of its own.

A worker group needs its smallest number of replicas. Where an autoscaler may remove all of them, it
needs none, and pods that come later start one by one.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from trainer_kai.api.meta import Meta
from trainer_kai.api.names import (
    PRIORITY_CLASS_NAME,
    RAY,
    RAY_CLUSTER,
    RAY_GROUP,
    RAY_NODE_TYPE,
    RAY_OPERATOR,
    RAY_OWNER,
    RAY_PRIORITY_CLASS,
)
from trainer_kai.api.ray import RayCluster, RayClusterSpec, RayJob, RayService
from trainer_kai.api.resources import RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.workloads.roles import (
    MAIN,
    ObjectState,
    PodRole,
    roles_kind,
    roles_workload,
    topology_of,
)
from trainer_kai.policy.workloads.workload import (
    PodGroupShape,
    PodPlace,
    RolePaths,
    SubGroupShape,
    Workload,
    WorkloadKind,
)

_HEAD: Final = "headgroup"
_SUBMITTER: Final = "submitter"
_SUBMITTER_PATHS: Final = RolePaths("spec.submitterPodTemplate", "spec.submitterPodTemplate")
_MANAGED_HERE: Final = frozenset({"", RAY_OPERATOR})
_ENDED: Final = frozenset({"Complete", "Failed", "ValidationFailed"})


def ray_cluster_workload(cluster: RayCluster) -> Workload | None:
    """Return None for the cluster of a RayJob or RayService."""
    controller = cluster.metadata.controller
    if controller is not None and controller.api_version.partition("/")[0] == RAY:
        return None
    spec = cluster.spec
    state = ObjectState(is_suspended=spec.suspend, is_managed_here=spec.managed_by in _MANAGED_HERE)
    return _workload(RAY_CLUSTER_KIND, cluster.metadata, spec, state)


def ray_job_workload(job: RayJob) -> Workload:
    """KubeRay suspends a RayJob only with a cluster of its own, which it shuts down at the end."""
    spec, status = job.spec, job.status
    cluster = None if spec.cluster_selector else spec.ray_cluster_spec
    state = ObjectState(
        is_suspended=spec.suspend,
        is_finished=status.job_deployment_status in _ENDED,
        is_managed_here=spec.managed_by in _MANAGED_HERE,
        is_suspendable=spec.shutdown_after_job_finishes and not spec.cluster_selector,
    )
    submitter = spec.submitter_pod_template
    others = () if submitter is None else (PodRole(_SUBMITTER, 1, submitter, _SUBMITTER_PATHS),)
    return _workload(RAY_JOB_KIND, job.metadata, cluster, state, others)


def ray_service_workload(service: RayService) -> Workload:
    state = ObjectState(is_suspendable=False)
    return _workload(RAY_SERVICE_KIND, service.metadata, service.spec.ray_cluster_config, state)


def ray_pod_place(labels: Mapping[str, str]) -> PodPlace:
    default = _HEAD if labels.get(RAY_NODE_TYPE) == "head" else _SUBMITTER
    return PodPlace(labels.get(RAY_GROUP) or default, "0", (0, 0))


def _workload(
    kind: WorkloadKind,
    meta: Meta,
    cluster: RayClusterSpec | None,
    state: ObjectState,
    others: tuple[PodRole, ...] = (),
) -> Workload:
    faults: list[Finding] = []
    roles, subgroups = list[PodRole](), list[SubGroupShape]()
    if cluster is not None:
        path = kind.form.jobs_path
        paths = RolePaths(f"{path}.headGroupSpec.template", f"{path}.headGroupSpec")
        roles.append(PodRole(_HEAD, 1, cluster.head_group_spec.template, paths))
        subgroups.append(_subgroup(roles[-1], 1, meta))
        for role, minimum in _worker_groups(cluster, path, faults):
            roles.append(role)
            subgroups.append(_subgroup(role, minimum, meta))
    names = tuple(role.name for role in roles)
    needed = sum(it.minimum for it in subgroups)
    shapes = [PodGroupShape(MAIN, names, needed, tuple(subgroups))] if roles else []
    shapes += (PodGroupShape(role.name, (role.name,), role.pods) for role in others)
    chosen = meta.labels.get(RAY_PRIORITY_CLASS)
    if chosen:
        meta = replace(meta, labels={**meta.labels, PRIORITY_CLASS_NAME: chosen})
    return roles_workload(kind, meta, (*roles, *others), tuple(shapes), state, faults)


def _worker_groups(
    cluster: RayClusterSpec, path: str, faults: list[Finding]
) -> Iterator[tuple[PodRole, int]]:
    """Yield the role and the minimum of each worker group; KubeRay raises replicas to theirs."""
    seen = {_HEAD, _SUBMITTER}
    for i, group in enumerate(cluster.worker_group_specs):
        name, at = group.group_name or f"worker-group-{i}", f"{path}.workerGroupSpecs[{i}]"
        if name in seen:
            message = f"{name!r} is the name of another group. Its pods are in no PodGroup"
            faults.append(Finding(f"{at}.groupName", message))
            continue
        seen.add(name)
        smallest = max(group.min_replicas or 0, 0)
        replicas = max(group.replicas or 0, smallest)
        needed = smallest if cluster.enable_in_tree_autoscaling else smallest or replicas
        hosts = 0 if group.suspend else max(group.num_of_hosts, 1)
        counted = "minReplicas" if smallest else "replicas"
        paths = RolePaths(f"{at}.template", f"{at}.{counted}")
        yield PodRole(name, replicas * hosts, group.template, paths), needed * hosts


def _subgroup(role: PodRole, minimum: int, meta: Meta) -> SubGroupShape:
    topology = topology_of(role.template.metadata.annotations, meta.annotations)
    return SubGroupShape(role.name, minimum, role.name, 0, role.pods, topology=topology)


RAY_CLUSTER_KIND: Final = roles_kind(
    RAY_CLUSTERS, ray_cluster_workload, ray_pod_place, name_label=RAY_CLUSTER, path="spec"
)._replace(needs_false=True)
RAY_JOB_KIND: Final = roles_kind(
    RAY_JOBS, ray_job_workload, ray_pod_place, name_label=RAY_OWNER, path="spec.rayClusterSpec"
)
RAY_SERVICE_KIND: Final = roles_kind(
    RAY_SERVICES,
    ray_service_workload,
    ray_pod_place,
    name_label=RAY_OWNER,
    path="spec.rayClusterConfig",
)
