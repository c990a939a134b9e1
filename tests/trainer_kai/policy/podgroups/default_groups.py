"""Owners of pods, and the PodGroups that they get by KAI's rule for all other kinds."""

from typing import Any

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.meta import Meta, OwnerReference
from trainer_kai.policy.podgroups.default_group import DefaultGroup, PodRequest
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.workloads.owner_chain import (
    OwnerChain,
    OwnerRecord,
    group_subject,
    owner_record,
)

CLASSES = SelectablePriorityClasses(
    {name: PriorityClass(metadata=Meta(name=name), value=50) for name in ("low", "mid", "high")}
)
QUEUE, PROJECT, POOL = "kai.scheduler/queue", "project", "kai.scheduler/node-pool"
PREEMPTIBILITY, CLASS = "kai.scheduler/preemptibility", "priorityClassName"
MINIMUM = "kai.scheduler/batch-min-member"


def owner(
    kind: str = "apps/v1/Deployment", *, is_ordered: bool = False, **said: Any
) -> OwnerRecord:
    api_version, _, only_kind = kind.rpartition("/")
    name = only_kind.lower()
    reference = OwnerReference(api_version=api_version, kind=only_kind, name=name, uid=f"u-{name}")
    meta = Meta(name=name, uid=reference.uid, **said)
    found = owner_record(reference, meta, is_ordered=is_ordered)
    assert found is not None
    return found


def group_of(*owners: OwnerRecord, pod: Any = None, priority_class: str = "") -> DefaultGroup:
    subject = group_subject(OwnerChain("ns", owners))
    reference = (
        subject.owner.reference if subject.owner else OwnerReference(kind="Pod", name="p", uid="u")
    )
    return DefaultGroup("ns", reference, subject, PodRequest(pod or {}, priority_class))
