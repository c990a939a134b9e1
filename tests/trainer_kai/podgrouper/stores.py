"""A podgrouper store with a JobSet, its Jobs and PodGroups, as the API server would show them."""

from collections.abc import Iterator
from typing import Any

from tests.support.workloads.jobsets import UID, job_uid
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.names import DEFAULT_QUEUE, SCHEDULER_NAME
from trainer_kai.podgrouper.plan import GroupingPlan, ObservedState, plan
from trainer_kai.podgrouper.store import PodgrouperStore
from trainer_kai.podgrouper.watched_podgroup import FIELD_MANAGER, WatchedPodGroup
from trainer_kai.policy.podgroups.manifests import GroupingRules, ManifestFields
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import ObjectKey

NAME = f"pg-job-{UID}"
BUNDLED = GroupingRules("bundled", SCHEDULER_NAME, DEFAULT_QUEUE)
EXTERNAL = GroupingRules("external", SCHEDULER_NAME, DEFAULT_QUEUE)


def store_with(jobset: JobSet, *, counts: bool = False) -> PodgrouperStore:
    store = PodgrouperStore(counts=counts)
    store.owner_changed(*trainjob_for(jobset))
    change_jobset(store, jobset)
    for job in jobset.spec.replicated_jobs:
        store.job_changed(*job_for(jobset, job.name))
    return store


def change_jobset(store: PodgrouperStore, jobset: JobSet) -> ObjectKey | None:
    """Pass a JobSet to the store as the watch does."""
    workload = jobset_workload(jobset)
    return store.workload_changed(workload.key, workload)


def trainjob_for(jobset: JobSet, **meta: Any) -> tuple[ObjectKey, PartialObject]:
    (owner,) = jobset.metadata.owner_references
    key = ObjectKey("TrainJob", jobset.metadata.namespace, owner.name)
    metadata = {"namespace": key.namespace, "name": key.name, "uid": owner.uid, **meta}
    return key, decode(PartialObject, encode({"metadata": metadata}))


def job_for(jobset: JobSet, name: str, owner: str = "") -> tuple[Key, PartialObject]:
    meta = jobset.metadata
    reference = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": meta.name,
        "uid": owner or meta.uid,
        "controller": True,
    }
    key = Key(meta.namespace, f"{meta.name}-{name}-0")
    metadata = {
        "namespace": key.namespace,
        "name": key.name,
        "uid": job_uid(name),
        "ownerReferences": [reference],
    }
    return key, decode(PartialObject, encode({"metadata": metadata}))


def applied(fields: ManifestFields, *, version: int = 1, more: Any = None) -> WatchedPodGroup:
    meta = fields["metadata"]
    managed = {
        "manager": FIELD_MANAGER,
        "operation": "Apply",
        "fieldsV1": {
            "f:metadata": {
                "f:labels": dict(_owned(meta["labels"])),
                "f:annotations": dict(_owned(meta["annotations"])),
                "f:ownerReferences": {'k:{"uid":"u"}': {}},
            },
            "f:spec": dict(_owned(fields["spec"])),
        },
    }
    stored = {
        "metadata": {
            **meta,
            "annotations": {**meta["annotations"], **(more or {}).get("annotations", {})},
            "uid": f"uid-{meta['name']}",
            "resourceVersion": str(version),
            "managedFields": [managed],
        },
        "spec": {**fields["spec"], **(more or {}).get("spec", {})},
    }
    return decode(WatchedPodGroup, encode(stored))


def _owned(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        yield f"f:{name}", dict(_owned(value)) if isinstance(value, dict) else {}


def next_plan(store: PodgrouperStore, rules: GroupingRules = BUNDLED) -> GroupingPlan:
    (found,) = map(store.with_owner_values, store.workloads.values())
    has_owner = store.has_owner(found)
    observed = ObservedState(store.groups(found.metadata.uid), has_owner=has_owner)
    return plan(found, observed, store.members(found), rules)


def apply_plan(store: PodgrouperStore, rules: GroupingRules = BUNDLED, **more: Any) -> GroupingPlan:
    steps = next_plan(store, rules)
    for fields in steps.apply:
        key = Key(fields["metadata"]["namespace"], fields["metadata"]["name"])
        store.group_changed(key, applied(fields, more=more))
    return steps
