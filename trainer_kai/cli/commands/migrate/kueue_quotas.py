"""From Kueue's ClusterQueues and Cohorts to Queues: quotas, limits, weights and parents. Pure.

A cohort becomes a parent Queue, with the sum below it as its quota. Kueue uses no more than the
quotas of a cohort, so the limit of a root is its quota; a ClusterQueue without a cohort borrows
nothing. The structs at the start are Kueue's: v1beta2 renamed `spec.cohort` of a ClusterQueue to
`cohortName`, and `spec.parent` of a Cohort to `parentName`, and both names are read.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import KUEUE
from trainer_kai.api.quantity import Quantity, QuantityError, milli
from trainer_kai.cli.commands.migrate.migration import (
    FieldRule,
    Migration,
    ObjectName,
    ReadObject,
    field_notes,
)
from trainer_kai.cli.commands.migrate.queue_manifests import (
    FREE,
    INSTALLED_QUEUES,
    MILLI,
    RESOURCES,
    UNLIMITED,
    QueueShare,
    amount_of,
    queue_field,
    queue_manifest,
    queue_name_fault,
    shares_text,
)
from trainer_kai.cli.commands.migrate.workloads import WORKLOAD_STRUCTS, LabelledObject
from trainer_kai.errors import FieldError
from trainer_kai.policy.queueing.queue_access import QueueAccessMode

KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1", "v1alpha1")
STOPPED: Final = ("Hold", "HoldAndDrain")  # policies of queues that take no more workloads


class FlavorResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None


class FlavorQuotas(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    resources: tuple[FlavorResource, ...] = ()


class ResourceGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    flavors: tuple[FlavorQuotas, ...] = ()


class FairSharing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    metadata: Meta
    spec: KueueQuotaSpec = KueueQuotaSpec()

    @property
    def parent(self) -> str:
        """Return the name of its cohort."""
        spec = self.spec
        return spec.cohort_name or spec.cohort or spec.parent_name or spec.parent


class LocalQueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    cluster_queue: str = ""
    stop_policy: str = ""


class LocalQueue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()


class WorkloadPriorityClass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    value: int = 0
    description: str = ""


KUEUE_STRUCTS: Final[Mapping[tuple[str, str], type[Any]]] = {
    (KUEUE, "ClusterQueue"): QuotaObject,
    (KUEUE, "Cohort"): QuotaObject,
    (KUEUE, "LocalQueue"): LocalQueue,
    (KUEUE, "WorkloadPriorityClass"): WorkloadPriorityClass,
    (KUEUE, "ResourceFlavor"): LabelledObject,
    (KUEUE, "Topology"): LabelledObject,
    (KUEUE, "AdmissionCheck"): LabelledObject,
    (KUEUE, "ProvisioningRequestConfig"): LabelledObject,
    (KUEUE, "MultiKueueConfig"): LabelledObject,
    (KUEUE, "MultiKueueCluster"): LabelledObject,
    **WORKLOAD_STRUCTS,
}


Shares = dict[str, QueueShare]
ReadQuota = ReadObject[QuotaObject]

_NO_EQUIVALENT: Final = (
    FieldRule(
        "spec.queueingStrategy",
        "annotate the Queue with trainer-kai.dev/queue-order: strict. It differs from StrictFIFO: "
        "a workload that can never start, or waits for its pods, a stage or a permission, holds no "
        "other back; without the annotation others start behind it, as with BestEffortFIFO",
        ("BestEffortFIFO",),
    ),
    FieldRule("spec.admissionChecks", "PodGroups start without admission checks"),
    FieldRule("spec.admissionChecksStrategy", "PodGroups start without admission checks"),
    FieldRule("spec.flavorFungibility", "a Queue has no flavors: the pods select their nodes"),
    FieldRule("spec.admissionScope", "the use of the past does not count"),
    FieldRule(
        "spec.namespaceSelector",
        "the namespaces of its LocalQueues get a grant, and no others; `trainer-kai queue allow` "
        "grants more",
    ),
    FieldRule(
        "spec.resourceGroups[].flavors[].resources[].lendingLimit",
        "quota that is not used is always lent, and reclaimed when the queue needs it",
    ),
)
_PREEMPTION: Final = (
    "queues reclaim their quota from queues over theirs, and a PodGroup of larger priority "
    "preempts in its queue. The setting policies.actions can turn reclaim and preempt "
    "off, for all queues"
)
_UNCOVERED: Final = (
    "does not cover {0}: Kueue admits no workload that requests it, and in the Queue it is "
    "unlimited. Set a quota and a limit if it is to be divided"
)
_FLAVORS: Final = (
    "the {} quotas of the flavors {} become one sum. Select nodes by nodeSelector in the "
    "workloads; no quota is kept for a flavor"
)


class _Cohort(NamedTuple):
    name: str
    queue: str
    parent: str
    depth: int
    it: ReadQuota | None  # None: only named by others

    @property
    def source(self) -> ObjectName:
        return self.it.name if self.it else ObjectName("Cohort", Key("", self.name))


def add_kueue_queues(
    migration: Migration,
    cluster_queues: list[ReadQuota],
    cohort_objects: list[ReadQuota],
    faults: list[FieldError],
) -> None:
    """Add a Queue for each cohort, parents first, and for each ClusterQueue."""
    cohorts = _cohorts(cluster_queues, cohort_objects, faults)
    below: dict[str, list[Shares]] = {}
    queues: list[tuple[ReadQuota, Shares]] = []
    for it in cluster_queues:
        shares = _queue_shares(migration, it, faults)
        queues.append((it, shares))
        below.setdefault(it.value.parent, []).append(shares)
    _add_cohorts(migration, cohorts, below, faults)
    for it, shares in queues:
        parent = cohorts[it.value.parent].queue if it.value.parent else ""
        _add_cluster_queue(migration, it, parent, shares)


def _cohorts(
    cluster_queues: list[ReadQuota], objects: list[ReadQuota], faults: list[FieldError]
) -> dict[str, _Cohort]:
    """Return all cohorts; a name that another Queue has gets a suffix."""
    taken = {*INSTALLED_QUEUES, *(it.value.metadata.name for it in cluster_queues)}
    by_name = {it.value.metadata.name: it for it in objects}
    parents = {name: it.value.parent for name, it in by_name.items()}
    named = {*(it.value.parent for it in cluster_queues), *parents, *parents.values()} - {""}
    cohorts: dict[str, _Cohort] = {}
    for name in sorted(named):
        queue = name
        while queue in taken:
            queue += "-cohort"
        taken.add(queue)
        ancestors = _ancestors(name, parents)
        it = by_name.get(name)
        if it and name in ancestors:
            path = " → ".join((name, *ancestors))
            message = f"spec.parentName: the cohort is below itself: {path}"
            faults.append(FieldError(str(it.document), message))
        cohorts[name] = _Cohort(name, queue, parents.get(name, ""), len(ancestors), it)
    return cohorts


def _ancestors(name: str, parents: Mapping[str, str]) -> list[str]:
    """Return the ancestors of a cohort, nearest first, up to the first that repeats."""
    found: list[str] = []
    while (name := parents.get(name, "")) and name not in found:
        found.append(name)
    return found


def _add_cohorts(
    migration: Migration,
    cohorts: Mapping[str, _Cohort],
    below: dict[str, list[Shares]],
    faults: list[FieldError],
) -> None:
    """Add a Queue for each cohort; children are counted before their parent."""
    manifests = {}
    for cohort in sorted(cohorts.values(), key=lambda it: (-it.depth, it.name)):
        own = _sums(migration, cohort.it, faults, can_borrow=True) if cohort.it else {}
        weight = _weight(cohort.it, faults) if cohort.it else 1
        shares: Shares = {}
        for name in RESOURCES:
            children = (it[name] for it in below.get(cohort.name, ()))
            share = _with_children(own.get(name, QueueShare(0, UNLIMITED)), children)
            limit = share.limit if cohort.parent else share.quota
            shares[name] = share._replace(limit=limit, weight=weight)
        below.setdefault(cohort.parent, []).append(shares)
        parent = cohorts[cohort.parent].queue if cohort.parent else ""
        manifest = queue_manifest(cohort.queue, parent, shares, QueueAccessMode.CLOSED)
        manifests[cohort.name] = manifest
    for cohort in sorted(cohorts.values(), key=lambda it: (it.depth, it.name)):
        manifest = manifests[cohort.name]
        migration.add(cohort.source, manifest, f"closed; {shares_text(manifest)}")
        if cohort.it:
            migration.unsupported += field_notes(cohort.it, _NO_EQUIVALENT)


def _with_children(own: QueueShare, children: Iterable[QueueShare]) -> QueueShare:
    """Add the quotas of the children; a borrowing limit is on top of all of them."""
    below = [it.quota for it in children]
    if UNLIMITED in below:
        return QueueShare(UNLIMITED, UNLIMITED)
    limit = UNLIMITED if own.limit == UNLIMITED else own.limit + sum(below)
    return QueueShare(own.quota + sum(below), limit)


def _add_cluster_queue(migration: Migration, it: ReadQuota, parent: str, shares: Shares) -> None:
    name = it.value.metadata.name
    if fault := queue_name_fault(name):
        message = f"{fault}: create a Queue with another name"
        migration.change_by_hand(it.name, "metadata.name", message)
        return
    queue = queue_manifest(name, parent, shares, QueueAccessMode.CLOSED)
    migration.add(it.name, queue, f"closed; {shares_text(queue)}")
    if it.value.spec.stop_policy in STOPPED:
        message = "the queue is stopped: leave out its grants until it takes workloads again"
        migration.change_by_hand(it.name, "spec.stopPolicy", message)
    migration.unsupported += field_notes(it, _NO_EQUIVALENT)
    migration.not_supported(it.name, "spec.preemption", _PREEMPTION)


def _queue_shares(migration: Migration, it: ReadQuota, faults: list[FieldError]) -> Shares:
    """Return the shares of a ClusterQueue; Kueue admits nothing of a resource without a quota."""
    sums = _sums(migration, it, faults, can_borrow=bool(it.value.parent))
    weight = _weight(it, faults)
    shares: Shares = {}
    for name in RESOURCES:
        default = QueueShare(0, 0, 0) if name == "gpu" else FREE
        shares[name] = sums[name]._replace(weight=weight) if name in sums else default
    uncovered = [name for name in RESOURCES if name not in sums and name != "gpu"]
    if uncovered:
        message = _UNCOVERED.format(" and ".join(uncovered))
        migration.change_by_hand(it.name, "spec.resourceGroups", message)
    return shares


def _sums(
    migration: Migration, it: ReadQuota, faults: list[FieldError], *, can_borrow: bool
) -> Shares:
    shares: Shares = {}
    flavors: dict[str, list[str]] = {}
    for path, flavor, quota in _flavor_resources(it.value):
        name = queue_field(quota.name)
        if not name:
            message = f"a Queue counts GPU, CPU and memory, and not {quota.name}"
            migration.not_supported(it.name, path, message)
            continue
        where = f"{it.document}: {path}"
        added = _flavor_share(quota, where, faults, can_borrow=can_borrow)
        shares[name] = _sum(shares.get(name, QueueShare(0, 0)), added)
        flavors.setdefault(name, []).append(flavor)
    for name, names in flavors.items():
        if len(names) > 1:
            message = _FLAVORS.format(name, ", ".join(names))
            migration.change_by_hand(it.name, "spec.resourceGroups", message)
    return shares


def _flavor_resources(it: QuotaObject) -> Iterator[tuple[str, str, FlavorResource]]:
    for i, group in enumerate(it.spec.resource_groups):
        for j, flavor in enumerate(group.flavors):
            for k, quota in enumerate(flavor.resources):
                yield f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}]", flavor.name, quota


def _sum(first: QueueShare, second: QueueShare) -> QueueShare:
    is_unlimited = UNLIMITED in (first.limit, second.limit)
    limit = UNLIMITED if is_unlimited else first.limit + second.limit
    return QueueShare(first.quota + second.quota, limit)


def _flavor_share(
    quota: FlavorResource, path: str, faults: list[FieldError], *, can_borrow: bool
) -> QueueShare:
    nominal = amount_of(quota.name, quota.nominal_quota, f"{path}.nominalQuota", faults)
    if not can_borrow:
        return QueueShare(nominal, nominal)
    if quota.borrowing_limit is None:
        return QueueShare(nominal, UNLIMITED)
    borrowed = amount_of(quota.name, quota.borrowing_limit, f"{path}.borrowingLimit", faults)
    return QueueShare(nominal, nominal + borrowed)


def _weight(it: ReadQuota, faults: list[FieldError]) -> float:
    sharing = it.value.spec.fair_sharing
    if sharing is None:
        return 1
    try:
        weight = milli(sharing.weight) / MILLI
    except QuantityError as error:
        faults.append(FieldError(str(it.document), f"spec.fairSharing.weight: {error}"))
        return 1
    if weight < 0:
        message = f"spec.fairSharing.weight: {sharing.weight} must not be negative"
        faults.append(FieldError(str(it.document), message))
    return max(weight, 0)
