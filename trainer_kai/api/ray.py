"""Ray on Kubernetes: clusters, and the jobs and services that KubeRay runs on one of their own."""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.pod import PodTemplate


class RayHeadGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: PodTemplate = PodTemplate()


class RayWorkerGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A replica has *num_of_hosts* pods."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class RayClusterSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    head_group_spec: RayHeadGroup = RayHeadGroup()
    worker_group_specs: tuple[RayWorkerGroup, ...] = ()
    enable_in_tree_autoscaling: bool = False
    suspend: bool = False
    managed_by: str = ""


class RayCluster(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: RayClusterSpec = RayClusterSpec()


class RayJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """With a cluster selector it runs on a cluster of another object."""

    ray_cluster_spec: RayClusterSpec | None = None
    cluster_selector: Mapping[str, str] = {}
    shutdown_after_job_finishes: bool = False
    submitter_pod_template: PodTemplate | None = None
    suspend: bool = False
    managed_by: str = ""


class RayJobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    job_deployment_status: str = ""


class RayJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()


class RayServiceSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    ray_cluster_config: RayClusterSpec = RayClusterSpec()


class RayService(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: RayServiceSpec = RayServiceSpec()
