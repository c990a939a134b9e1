"""The PodGroup of pods whose kind of owner has no adapter: KAI's rule for all other kinds.

One PodGroup for all pods of an owner, `pg-OWNER-UID`, which starts with one pod unless the owner's
annotation `kai.scheduler/batch-min-member` asks for more. What no owner says, the labels of a pod
say; then defaults count.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.meta import Key, OwnerReference
from trainer_kai.api.names import (
    BATCH_MIN_MEMBER,
    GANG,
    KNATIVE,
    KNATIVE_MIN_SCALE,
    MEMBERS,
    NODE_POOL,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    STAGE,
    STALENESS_GRACE_PERIOD,
    TOP_OWNER,
)
from trainer_kai.api.requested_values import (
    is_count,
    requested_annotation_faults,
    requested_label_faults,
)
from trainer_kai.api.resources import PODGROUPS
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.podgroups.grouping import MAIN, podgroup_name
from trainer_kai.policy.podgroups.manifests import (
    ManifestFields,
    owner_text,
    topology_constraint,
    valid_annotations,
    valid_labels,
)
from trainer_kai.policy.queueing.kind_defaults import KindDefault, KindDefaults
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.workloads.owner_chain import GroupSubject

_ONLY_STAGE: Final = "1/1"


class PodRequest(NamedTuple):
    """What a pod says of its PodGroup."""

    labels: Mapping[str, str]
    priority_class: str


class DefaultGroup(NamedTuple):
    """One PodGroup: its owner, which is the subject or a single pod, and what it says of it."""

    namespace: str
    owner: OwnerReference
    subject: GroupSubject
    pod: PodRequest

    @property
    def key(self) -> Key:
        return Key(self.namespace, podgroup_name(self.owner.name, self.owner.uid, MAIN))


def default_podgroup(
    group: DefaultGroup, queue: str, classes: SelectablePriorityClasses, defaults: KindDefaults
) -> ManifestFields:
    owner = {
        "apiVersion": group.owner.api_version,
        "kind": group.owner.kind,
        "name": group.owner.name,
        "uid": group.owner.uid,
    }
    default = defaults.of(group.owner.api_version.rpartition("/")[0], group.owner.kind)
    pool = group.subject.labels.get(NODE_POOL) or group.pod.labels.get(NODE_POOL)
    labels = {GANG: MAIN, QUEUE: queue, **({NODE_POOL: pool} if pool else {})}
    annotations = valid_annotations(group.subject.annotations)
    requested: ManifestFields = {
        "queue": queue,
        "priorityClassName": _priority_class(group, classes, default),
        "preemptibility": _preemptibility(group) or default.preemptibility,
        "preemptionDelay": annotations.get(PREEMPTION_DELAY),
        "stalenessGracePeriod": annotations.get(STALENESS_GRACE_PERIOD),
        "topologyConstraint": topology_constraint(annotations),
        "minMember": _min_member(group.subject),
    }
    return {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {
            "name": group.key.name,
            "namespace": group.namespace,
            "labels": labels,
            "annotations": {
                STAGE: _ONLY_STAGE,
                MEMBERS: f"pods of {group.owner.kind} {group.owner.name}",
                TOP_OWNER: owner_text(owner),
            },
            "ownerReferences": [owner],
        },
        "spec": {name: value for name, value in requested.items() if value},
    }


def default_group_findings(subject: GroupSubject) -> Iterator[Finding]:
    for fault in (
        *requested_label_faults(subject.labels, "metadata.labels"),
        *requested_annotation_faults(subject.annotations, "metadata.annotations"),
    ):
        yield Finding(fault.path, fault.message, blocks=f"[{QUEUE}]" in fault.path)
    if BATCH_MIN_MEMBER in subject.annotations and subject.owner and subject.owner.is_ordered:
        message = (
            f"ignored: the {subject.owner.reference.kind} creates its pods one after another, so "
            "they cannot start together. Set spec.podManagementPolicy to Parallel"
        )
        yield Finding(f"metadata.annotations[{BATCH_MIN_MEMBER}]", message)


def _min_member(subject: GroupSubject) -> int:
    """As in KAI, the pods that a revision of Knative always has start together."""
    is_revision = subject.owner is not None and subject.owner.group_kind == (KNATIVE, "Revision")
    default = subject.annotations.get(KNATIVE_MIN_SCALE, "") if is_revision else ""
    text = subject.annotations.get(BATCH_MIN_MEMBER, default)
    is_ordered = subject.owner is None or subject.owner.is_ordered
    return int(text) if is_count(text) and not is_ordered else 1


def _priority_class(
    group: DefaultGroup, classes: SelectablePriorityClasses, default: KindDefault
) -> str:
    """Return the first class that exists, as in KAI."""
    named = (*_label_values(group, PRIORITY_CLASS_NAME), group.pod.priority_class)
    existing = (name for name in named if classes.exists(name))
    return next(existing, default.priority_class)


def _preemptibility(group: DefaultGroup) -> str | None:
    return next(_label_values(group, PREEMPTIBILITY), None)


def _label_values(group: DefaultGroup, name: str) -> Iterator[str]:
    """Yield the valid values of a label: of the owners, the nearest first, and of the pod."""
    subject = group.subject
    for labels in (*(it.labels for it in subject.owners), subject.labels, group.pod.labels):
        value = valid_labels({key: labels[key] for key in (name,) if key in labels}).get(name)
        if value:
            yield value
