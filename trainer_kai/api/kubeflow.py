"""The jobs of Kubeflow's training operator v1 and of its MPI operator.

Their roles are a map of replica specs, in a field of its own for each kind. Only fields that decide
about PodGroups are read.
"""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.pod import PodTemplate


class ReplicaSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The operators default to one replica."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()


class GangPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The job's `schedulingPolicy`."""

    min_available: int | None = None


class RunPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    suspend: bool = False
    managed_by: str = ""
    scheduling_policy: GangPolicy = GangPolicy()


class ElasticPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    min_replicas: int | None = None


ReplicaSpecs = Mapping[str, ReplicaSpec]


class KubeflowJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Each kind has one of the five maps."""

    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy = ElasticPolicy()
    launcher_creation_policy: str = ""
    pytorch_replica_specs: ReplicaSpecs = {}
    mpi_replica_specs: ReplicaSpecs = {}
    tf_replica_specs: ReplicaSpecs = {}
    xgb_replica_specs: ReplicaSpecs = {}
    jax_replica_specs: ReplicaSpecs = {}


class KubeflowJobStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class KubeflowJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: KubeflowJobSpec = KubeflowJobSpec()
    status: KubeflowJobStatus = KubeflowJobStatus()
