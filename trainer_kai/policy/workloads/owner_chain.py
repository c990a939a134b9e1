"""The owners of a pod, from the nearest to the farthest, and which of them its PodGroup is for.

An owner reference is written by the author of the object, so each owner counts only if it was read
and has the uid that the reference names. What cannot be followed ends the chain, and stops nothing:
the last owner that was read counts. A forged owner lets a pod join a PodGroup of its own namespace,
and no other, since owners are read in the namespace of the pod.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from trainer_kai.api.meta import Meta, OwnerReference
from trainer_kai.api.names import (
    ARGO,
    BATCH,
    BATCH_MIN_MEMBER,
    DYNAMO,
    KNATIVE,
    KNATIVE_MIN_SCALE,
    NODE_POOL,
    POD_GROUP,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    PROJECT,
    QUEUE,
    RUN_AI_DOMAIN,
    SKIP_PODGROUPER,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    TRAINER,
)
from trainer_kai.api.resources import PODS

MOST_OWNERS: Final = 8  # of a chain

# What is stored of an owner: it may have as many labels and annotations as its author likes.
_LABELS: Final = (
    QUEUE,
    PROJECT,
    NODE_POOL,
    PRIORITY_CLASS_NAME,
    PREEMPTIBILITY,
)
_ANNOTATIONS: Final = (
    BATCH_MIN_MEMBER,
    KNATIVE_MIN_SCALE,
    SKIP_PODGROUPER,
    POD_GROUP,
    PREEMPTION_DELAY,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
)

# Kinds of which each object below is a PodGroup of its own, by group and kind. As in KAI their
# labels and annotations count where that object has none. A run of a CronJob is one as well.
WRAPPERS: Final = frozenset(
    {
        (TRAINER, "TrainJob"),
        (BATCH, "CronJob"),
        (ARGO, "Workflow"),
        (DYNAMO, "DynamoGraphDeployment"),
        (KNATIVE, "Service"),
        (KNATIVE, "Configuration"),
        (RUN_AI_DOMAIN, "TrainingWorkload"),
        (RUN_AI_DOMAIN, "InteractiveWorkload"),
        (RUN_AI_DOMAIN, "DistributedWorkload"),
        (RUN_AI_DOMAIN, "InferenceWorkload"),
        (RUN_AI_DOMAIN, "DistributedInferenceWorkload"),
    }
)


class ChainEnd(Enum):
    """Why a chain of owners ends."""

    TOP = "has no owner"
    FORBIDDEN = "cannot be read: give the ServiceAccount of the podgrouper the verb get on its kind"
    MISSING = "does not exist, is being deleted, or has another uid"
    CLUSTER = "is in no namespace"
    SEVERAL = "has several owners, and none of them is its controller"
    CYCLE = "is among its own owners"
    TOO_DEEP = f"is the last of {MOST_OWNERS} owners that are read"


class OwnerRecord(NamedTuple):
    """What is stored of an owner that was read."""

    reference: OwnerReference
    owners: tuple[OwnerReference, ...]
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    is_ordered: bool = False  # it creates its pods one after another

    @property
    def group_kind(self) -> tuple[str, str]:
        return self.reference.api_version.rpartition("/")[0], self.reference.kind


class OwnerChain(NamedTuple):
    namespace: str
    owners: tuple[OwnerRecord, ...] = ()  # the nearest first
    end: ChainEnd = ChainEnd.TOP
    unread: OwnerReference | None = None  # the owner that ends the chain, if that is one

    @property
    def is_skipped(self) -> bool:
        return any(is_skipped(it.annotations) for it in self.owners)


class GroupSubject(NamedTuple):
    """What a PodGroup is for: an owner, or without one each pod is a PodGroup of its own.

    The labels and annotations of owners that were skipped count where it has none.
    """

    owner: OwnerRecord | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[OwnerRecord, ...]  # up to it, the nearest first

    @property
    def existing_group(self) -> str:
        """Return the PodGroup that a bare pod has by hand: its pods join it."""
        if self.owner is None or self.owner.group_kind != (PODS.group, PODS.kind):
            return ""
        return self.owner.annotations.get(POD_GROUP, "")


def owner_record(
    reference: OwnerReference, meta: Meta, *, is_ordered: bool = False
) -> OwnerRecord | None:
    """Return what is stored of the object that was read for a reference.

    None if it is another one, or is being deleted: it makes no more pods, and its PodGroup would be
    deleted with it again and again.
    """
    if not reference.uid or meta.uid != reference.uid or meta.deletion_timestamp:
        return None
    labels = {name: meta.labels[name] for name in _LABELS if name in meta.labels}
    known = meta.annotations
    annotations = {name: known[name] for name in _ANNOTATIONS if name in known}
    return OwnerRecord(reference, meta.owner_references, labels, annotations, is_ordered)


def leading_owner(owners: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """Return the owner that controls an object; the only one need not say that it does."""
    controller = next((it for it in owners if it.controller), None)
    return owners[0] if controller is None and len(owners) == 1 else controller


def next_owner(
    owners: tuple[OwnerReference, ...], seen: Collection[str]
) -> OwnerReference | ChainEnd:
    """Return the next owner to read, or why there is none; *seen* are the uids below."""
    if not owners:
        return ChainEnd.TOP
    owner = leading_owner(owners)
    if owner is None:
        return ChainEnd.SEVERAL
    if owner.uid in seen:
        return ChainEnd.CYCLE
    return ChainEnd.TOO_DEEP if len(seen) >= MOST_OWNERS else owner


def is_skipped(annotations: Mapping[str, str]) -> bool:
    return annotations.get(SKIP_PODGROUPER) == "true"


def group_subject(chain: OwnerChain) -> GroupSubject:
    """Return the farthest owner that is no wrapper."""
    kept = [*chain.owners]
    wrappers: list[OwnerRecord] = []
    while kept and kept[-1].group_kind in WRAPPERS:
        wrappers.append(kept.pop())
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner = kept[-1] if kept else None
    for it in (*wrappers, *([owner] if owner else [])):  # the nearest last: it wins
        labels |= it.labels
        annotations |= it.annotations
    return GroupSubject(owner, labels, annotations, tuple(kept))
