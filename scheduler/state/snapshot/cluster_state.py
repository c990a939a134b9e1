"""The state of a cluster, updated object by object, and snapshots that cost what has changed.

The contract of `ClusterState`:

1. It has one owner, and no two calls at a time. A snapshot that it returned never changes.
2. Objects may be put in any order, and more than once; of one name the last object counts.
3. A snapshot is the same as that of a state into which only the present objects were put.
"""

from collections.abc import KeysView, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from scheduler.state.claims.claim_state import ClaimChanges
from scheduler.state.inputs import Cluster, ObjectStore, StateOptions
from scheduler.state.queues.access import AccessQuestion
from scheduler.state.snapshot.builder import ObjectChanges, SnapshotBuilder
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot, difference
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Object, without_version
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PDBS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    QUEUES,
    QUOTAS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from trainer_kai.errors import InvariantError
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE, OWNER_OF_RESOURCE
from trainer_kai.policy.workloads.workload import ObjectKey, Workload

T = TypeVar("T", bound=Object)


class ClusterState:
    """A store for each kind of object; puts are cheap, and `snapshot` reads what has changed."""

    def __init__(self, options: StateOptions) -> None:
        self._options: Final = options
        self.cluster: Final = Cluster()
        self.stores: Final[Mapping[Resource[Any], ObjectStore[Any, Any]]] = {
            resource: ObjectStore(objects, _is_same_podgroup)
            if resource is PODGROUPS
            else ObjectStore(objects)
            for resource, objects in self.cluster.by_resource().items()
        }
        self._workloads: Final = ObjectStore(self.cluster.workloads, Workload.is_same)
        self._owners: Final = ObjectStore(self.cluster.owners)
        self.suspend_refusals: Final = ObjectStore(self.cluster.suspend_refusals)
        self.reverted_suspensions: Final = ObjectStore(self.cluster.reverted_suspensions)
        self.permits: Final = ObjectStore(self.cluster.permits)
        self.stale_since: Final = ObjectStore(self.cluster.stale_since)
        self.api_evictions: Final = ObjectStore(self.cluster.api_evictions)
        self._builder = SnapshotBuilder(self.cluster, options)

    def put(self, resource: Resource[T], key: Key, obj: T | None) -> T | None:
        kind, owner_kind = KIND_OF_RESOURCE.get(resource), OWNER_OF_RESOURCE.get(resource)
        if kind is not None:
            workload = self._options.workload(kind, obj)
            self._workloads.put(ObjectKey(resource.kind, *key), workload)
            obj = obj if workload is not None else None
        elif owner_kind is not None:
            owner = owner_kind.adapt(obj) if obj is not None else None
            self._owners.put(ObjectKey(resource.kind, *key), owner)
        before: T | None = self.stores[resource].put(key if resource.namespaced else key.name, obj)
        return before

    def put_all(self, cluster: Cluster) -> None:
        for resource, objects in cluster.by_resource().items():
            if resource in cluster.workload_objects:
                for key, obj in [*objects.items()]:
                    self.put(resource, key, obj)
            else:
                self.stores[resource].put_all(objects)
        self.suspend_refusals.put_all(cluster.suspend_refusals)
        self.reverted_suspensions.put_all(cluster.reverted_suspensions)
        self.permits.put_all(cluster.permits)
        self.stale_since.put_all(cluster.stale_since)
        self.api_evictions.put_all(cluster.api_evictions)
        self.cluster.bind_gpu_groups.update(cluster.bind_gpu_groups)
        self.cluster.assumed_claims.update(cluster.assumed_claims)

    def snapshot(self, now: int) -> EncodedSnapshot:
        if self._builder.is_sparse:  # most pods are gone: a new builder is cheap
            self._builder = SnapshotBuilder(self.cluster, self._options)
            self.put_all(self.cluster)
        self._builder.read(self._drain_changes(), now)
        return self._builder.snapshot(now)

    @property
    def access_questions(self) -> KeysView[AccessQuestion]:
        return self._builder.access_questions

    @property
    def terminating_pods(self) -> list[Pod]:
        return self._builder.terminating_pods

    def check(self, now: int) -> None:
        """Raise `InvariantError` if a new state with these objects has another snapshot.

        As long as selectors are being evaluated, there is none to compare with.
        """
        encoded = self.snapshot(now)
        if encoded.unevaluated_namespaces:
            return
        fresh = ClusterState(replace(self._options, selector_steps=0))
        fresh.put_all(self.cluster)
        first_difference = difference(encoded, fresh.snapshot(now))
        if first_difference is not None:
            raise InvariantError(first_difference)

    def _drain_changes(self) -> ObjectChanges:
        changes = {resource: store.drain_changes() for resource, store in self.stores.items()}
        return ObjectChanges(
            nodes=changes[NODES],
            pods=changes[PODS],
            pod_groups=[
                *changes[PODGROUPS],
                *self.stale_since.drain_changes(),
                *self.api_evictions.drain_changes(),
            ],
            workloads=self._workloads.drain_changes(),
            suspendables=[
                *self._owners.drain_changes(),
                *self.suspend_refusals.drain_changes(),
                *self.reverted_suspensions.drain_changes(),
            ],
            permits=self.permits.drain_changes().keys(),
            has_queues=bool(changes[QUEUES]),
            has_priority_classes=bool(changes[PRIORITY_CLASSES]),
            quotas=changes[QUOTAS],
            has_namespaces=bool(changes[NAMESPACES]),
            has_budgets=bool(changes[PDBS]),
            has_claims=bool(changes[PVCS] or changes[PVS] or changes[STORAGE_CLASSES]),
            has_topologies=bool(changes[TOPOLOGIES]),
            for_devices=ClaimChanges(
                changes[RESOURCE_SLICES],
                changes[RESOURCE_CLAIMS].keys(),
                has_rules=bool(changes[DEVICE_TAINT_RULES]),
                has_definitions=bool(changes[CLAIM_TEMPLATES] or changes[DEVICE_CLASSES]),
            ),
        )


def _is_same_podgroup(before: PodGroup, now: PodGroup) -> bool:
    """Say whether at most the status has changed: we write it, and a plan does not depend on it."""
    metas = without_version(before.metadata), without_version(now.metadata)
    return metas[0] == metas[1] and before.spec == now.spec


def encode(cluster: Cluster, options: StateOptions) -> EncodedSnapshot:
    """Return the snapshot of a cluster; the order of its objects does not matter."""
    state = ClusterState(options)
    state.put_all(cluster)
    return state.snapshot(options.now)
