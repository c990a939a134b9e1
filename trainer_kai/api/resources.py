"""The kinds that we read, their API paths, our struct for each, and who owns an object.

An owner reference is written by the author of the object. It does not prove that the owner exists
or has that uid.
"""

from typing import Final, Generic, TypeVar

import msgspec

from trainer_kai.api.cluster_kinds import (
    AccessReview,
    Deployment,
    Event,
    Lease,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    PriorityClass,
    ProvisioningRequest,
    ResourceQuota,
    Role,
    RoleBinding,
    StatefulSet,
    StorageClass,
)
from trainer_kai.api.device_kinds import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from trainer_kai.api.jobset import Job, JobSet
from trainer_kai.api.kai_kinds import PodGroup, Queue, Topology
from trainer_kai.api.kubeflow import KubeflowJob
from trainer_kai.api.leader_worker_set import LeaderWorkerSet
from trainer_kai.api.meta import Meta, Object, OwnerReference, PartialObject
from trainer_kai.api.names import (
    APPS,
    AUTHORIZATION,
    AUTOSCALING,
    BATCH,
    COORDINATION,
    JOBSET,
    KAI,
    KUBEFLOW,
    LEADER_WORKER_SET,
    POLICY,
    RAY,
    RBAC,
    RESOURCE,
    RUN_AI,
    SCHEDULING,
    STORAGE,
    TRAINER,
)
from trainer_kai.api.pod import Pod
from trainer_kai.api.ray import RayCluster, RayJob, RayService
from trainer_kai.api.trainjob import Runtime, TrainJob

T = TypeVar("T", bound=Object)
U = TypeVar("U", bound=Object)


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """Group, version and plural form the URL path."""

    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    namespaced: bool
    struct: type[T]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def with_struct(self, struct: type[U]) -> "Resource[U]":
        """Return the same kind for a reader that needs only the fields of a smaller struct."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced, struct)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _namespaced(group: str, version: str, plural: str, struct: type[T], kind: str) -> Resource[T]:
    return Resource(group, version, plural, kind, namespaced=True, struct=struct)


def _cluster_wide(group: str, version: str, plural: str, struct: type[T], kind: str) -> Resource[T]:
    return Resource(group, version, plural, kind, namespaced=False, struct=struct)


PODS: Final = _namespaced("", "v1", "pods", Pod, "Pod")
NODES: Final = _cluster_wide("", "v1", "nodes", Node, "Node")
NAMESPACES: Final = _cluster_wide("", "v1", "namespaces", Namespace, "Namespace")
EVENTS: Final = _namespaced("", "v1", "events", Event, "Event")
CONFIG_MAPS: Final = _namespaced("", "v1", "configmaps", PartialObject, "ConfigMap")
PVCS: Final = _namespaced(
    "", "v1", "persistentvolumeclaims", PersistentVolumeClaim, "PersistentVolumeClaim"
)
PVS: Final = _cluster_wide("", "v1", "persistentvolumes", PersistentVolume, "PersistentVolume")
STORAGE_CLASSES: Final = _cluster_wide(
    STORAGE, "v1", "storageclasses", StorageClass, "StorageClass"
)
PRIORITY_CLASSES: Final = _cluster_wide(
    SCHEDULING, "v1", "priorityclasses", PriorityClass, "PriorityClass"
)
QUOTAS: Final = _namespaced("", "v1", "resourcequotas", ResourceQuota, "ResourceQuota")
PDBS: Final = _namespaced(
    POLICY, "v1", "poddisruptionbudgets", PodDisruptionBudget, "PodDisruptionBudget"
)
DEPLOYMENTS: Final = _namespaced(APPS, "v1", "deployments", Deployment, "Deployment")
REPLICA_SETS: Final = _namespaced(APPS, "v1", "replicasets", PartialObject, "ReplicaSet")
STATEFUL_SETS: Final = _namespaced(APPS, "v1", "statefulsets", StatefulSet, "StatefulSet")
DAEMON_SETS: Final = _namespaced(APPS, "v1", "daemonsets", PartialObject, "DaemonSet")
LEASES: Final = _namespaced(COORDINATION, "v1", "leases", Lease, "Lease")
JOBS: Final = _namespaced(BATCH, "v1", "jobs", Job, "Job")
CRON_JOBS: Final = _namespaced(BATCH, "v1", "cronjobs", PartialObject, "CronJob")
JOBSETS: Final = _namespaced(JOBSET, "v1alpha2", "jobsets", JobSet, "JobSet")
TRAINJOBS: Final = _namespaced(TRAINER, "v1alpha1", "trainjobs", TrainJob, "TrainJob")
RUNTIMES: Final = _namespaced(TRAINER, "v1alpha1", "trainingruntimes", Runtime, "TrainingRuntime")
CLUSTER_RUNTIMES: Final = _cluster_wide(
    TRAINER, "v1alpha1", "clustertrainingruntimes", Runtime, "ClusterTrainingRuntime"
)
PYTORCH_JOBS: Final = _namespaced(KUBEFLOW, "v1", "pytorchjobs", KubeflowJob, "PyTorchJob")
TF_JOBS: Final = _namespaced(KUBEFLOW, "v1", "tfjobs", KubeflowJob, "TFJob")
XGBOOST_JOBS: Final = _namespaced(KUBEFLOW, "v1", "xgboostjobs", KubeflowJob, "XGBoostJob")
JAX_JOBS: Final = _namespaced(KUBEFLOW, "v1", "jaxjobs", KubeflowJob, "JAXJob")
MPI_JOBS: Final = _namespaced(KUBEFLOW, "v2beta1", "mpijobs", KubeflowJob, "MPIJob")
MPI_V1_JOBS: Final = _namespaced(KUBEFLOW, "v1", "mpijobs", KubeflowJob, "MPIJob")
RAY_CLUSTERS: Final = _namespaced(RAY, "v1", "rayclusters", RayCluster, "RayCluster")
RAY_JOBS: Final = _namespaced(RAY, "v1", "rayjobs", RayJob, "RayJob")
RAY_SERVICES: Final = _namespaced(RAY, "v1", "rayservices", RayService, "RayService")
LEADER_WORKER_SETS: Final = _namespaced(
    LEADER_WORKER_SET, "v1", "leaderworkersets", LeaderWorkerSet, "LeaderWorkerSet"
)
PODGROUPS: Final = _namespaced(RUN_AI, "v2alpha2", "podgroups", PodGroup, "PodGroup")
QUEUES: Final = _cluster_wide(RUN_AI, "v2", "queues", Queue, "Queue")
TOPOLOGIES: Final = _cluster_wide(KAI, "v1alpha1", "topologies", Topology, "Topology")
ROLES: Final = _namespaced(RBAC, "v1", "roles", Role, "Role")
ROLE_BINDINGS: Final = _namespaced(RBAC, "v1", "rolebindings", RoleBinding, "RoleBinding")
CLUSTER_ROLES: Final = _cluster_wide(RBAC, "v1", "clusterroles", Role, "ClusterRole")
CLUSTER_ROLE_BINDINGS: Final = _cluster_wide(
    RBAC, "v1", "clusterrolebindings", RoleBinding, "ClusterRoleBinding"
)
RESOURCE_CLAIMS: Final = _namespaced(
    RESOURCE, "v1", "resourceclaims", ResourceClaim, "ResourceClaim"
)
CLAIM_TEMPLATES: Final = _namespaced(
    RESOURCE, "v1", "resourceclaimtemplates", ResourceClaimTemplate, "ResourceClaimTemplate"
)
DEVICE_CLASSES: Final = _cluster_wide(RESOURCE, "v1", "deviceclasses", DeviceClass, "DeviceClass")
RESOURCE_SLICES: Final = _cluster_wide(
    RESOURCE, "v1", "resourceslices", ResourceSlice, "ResourceSlice"
)
DEVICE_TAINT_RULES: Final = _cluster_wide(
    RESOURCE, "v1", "devicetaintrules", DeviceTaintRule, "DeviceTaintRule"
)
# Where queues ask for nodes by them; the templates are written and never read.
POD_TEMPLATES: Final = _namespaced("", "v1", "podtemplates", PartialObject, "PodTemplate")
PROVISIONING_REQUESTS: Final = _namespaced(
    AUTOSCALING, "v1", "provisioningrequests", ProvisioningRequest, "ProvisioningRequest"
)
# Created to get an answer; the API server does not store them.
ACCESS_REVIEWS: Final = _cluster_wide(
    AUTHORIZATION, "v1", "subjectaccessreviews", AccessReview, "SubjectAccessReview"
)
# Not served by every cluster: without them no device is allocated.
DEVICE_KINDS: Final = (
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    DEVICE_TAINT_RULES,
    CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)

ALL: Final = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    PVCS,
    PVS,
    STORAGE_CLASSES,
    PRIORITY_CLASSES,
    QUOTAS,
    PDBS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    LEASES,
    JOBS,
    CRON_JOBS,
    JOBSETS,
    TRAINJOBS,
    RUNTIMES,
    CLUSTER_RUNTIMES,
    PYTORCH_JOBS,
    TF_JOBS,
    XGBOOST_JOBS,
    JAX_JOBS,
    MPI_JOBS,
    MPI_V1_JOBS,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    LEADER_WORKER_SETS,
    PODGROUPS,
    QUEUES,
    TOPOLOGIES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    RESOURCE_CLAIMS,
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    DEVICE_TAINT_RULES,
    PROVISIONING_REQUESTS,
)


def trainjob_owner(meta: Meta) -> OwnerReference | None:
    owner = meta.controller
    if owner is None or owner.kind != TRAINJOBS.kind:
        return None
    return owner if owner.api_version.partition("/")[0] == TRAINJOBS.group else None


def same_name_trainjob_owner(jobset: Meta) -> OwnerReference | None:
    """Return the TrainJob that controls a JobSet, if both have the same name.

    Trainer gives both the same name. A JobSet with another name was created by a user, and is not
    suspended together with the TrainJob that it names.
    """
    owner = trainjob_owner(jobset)
    return owner if owner is not None and owner.name == jobset.name else None
