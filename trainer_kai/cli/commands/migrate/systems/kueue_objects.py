"""The objects of Kueue that a move reads, in the versions v1alpha1, v1beta1 and v1beta2. Pure.

v1beta2 renamed `spec.cohort` of a ClusterQueue to `cohortName`, and `spec.parent` of a Cohort to
`parentName`; both names are read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.names import KUEUE
from trainer_kai.api.quantity import Quantity
from trainer_kai.cli.commands.migrate.workloads import WORKLOAD_STRUCTS, Workload

KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1", "v1alpha1")
STOPPED: Final = ("Hold", "HoldAndDrain")  # policies of queues that take no more workloads


class FlavorResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The quota of one resource in one flavor."""

    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None


class FlavorQuotas(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The quotas in one flavor."""

    name: str
    resources: tuple[FlavorResource, ...] = ()


class ResourceGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Resources that are counted together, by flavor."""

    flavors: tuple[FlavorQuotas, ...] = ()


class FairSharing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The weight of a queue or a cohort."""

    weight: Quantity = 1


class KueueQuotaSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What a ClusterQueue and a Cohort have in common; the parent has a name by version."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_sharing: FairSharing | None = None
    cohort: str = ""
    cohort_name: str = ""
    parent: str = ""
    parent_name: str = ""
    stop_policy: str = ""


class QuotaObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A ClusterQueue or a Cohort."""

    metadata: Meta
    spec: KueueQuotaSpec = KueueQuotaSpec()

    @property
    def parent(self) -> str:
        """Return the name of its cohort."""
        spec = self.spec
        return spec.cohort_name or spec.cohort or spec.parent_name or spec.parent


class LocalQueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The ClusterQueue of a LocalQueue."""

    cluster_queue: str = ""
    stop_policy: str = ""


class LocalQueue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A queue of a namespace."""

    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()


class WorkloadPriorityClass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A priority of workloads, which pods do not have."""

    metadata: Meta
    value: int = 0
    description: str = ""


KUEUE_STRUCTS: Final[Mapping[tuple[str, str], type[Any]]] = {
    (KUEUE, "ClusterQueue"): QuotaObject,
    (KUEUE, "Cohort"): QuotaObject,
    (KUEUE, "LocalQueue"): LocalQueue,
    (KUEUE, "WorkloadPriorityClass"): WorkloadPriorityClass,
    (KUEUE, "ResourceFlavor"): Workload,
    (KUEUE, "Topology"): Workload,
    (KUEUE, "AdmissionCheck"): Workload,
    (KUEUE, "ProvisioningRequestConfig"): Workload,
    (KUEUE, "MultiKueueConfig"): Workload,
    (KUEUE, "MultiKueueCluster"): Workload,
    **WORKLOAD_STRUCTS,
}


def flavor_resources(it: QuotaObject) -> Iterator[tuple[str, str, FlavorResource]]:
    """Yield each quota of an object, with its path and the name of its flavor."""
    for i, group in enumerate(it.spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            for k, quota in enumerate(flavor.resources):
                yield f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}]", flavor.name, quota
