"""Creates the pods and PodGroups of Deployments and other objects that own pods by a template.

Pods that exist are grouped by their owners, as far as these are in the input, and are not created
again.
"""

from collections.abc import Iterable
from typing import Final

from trainer_kai.api.meta import Meta
from trainer_kai.api.names import POD_GROUP
from trainer_kai.api.pod import Pod, PodStatus
from trainer_kai.api.text import listed_names
from trainer_kai.cli.commands.plan.admission import other_scheduler_finding
from trainer_kai.cli.commands.plan.preview import owner_queue
from trainer_kai.cli.commands.simulate.create_pods import (
    assigned_pod,
    check_pod_count,
    new_podgroup,
    own_uid,
)
from trainer_kai.cli.input.cluster import InputCluster
from trainer_kai.cli.input.kinds import UID
from trainer_kai.cli.input.pod_owners import TEMPLATE_KINDS, OwnedPods, owned_pods
from trainer_kai.podgrouper.loose_pods import LoosePod
from trainer_kai.podgrouper.plan import ObservedState, plan_default
from trainer_kai.policy.podgroups.default_group import default_podgroup
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.workloads.kinds import kind_of_owner
from trainer_kai.policy.workloads.owner_chain import MOST_OWNERS, is_skipped, leading_owner
from trainer_kai.policy.workloads.workload import ObjectKey

_NUMBERED: Final = frozenset({"StatefulSet", "Notebook"})  # pods have the name and an index


def create_owned_pods(inputs: InputCluster, rules: GroupingRules) -> None:
    if not inputs.pod_owners:
        return
    existing: dict[ObjectKey, list[Pod]] = {}
    for pod in inputs.cluster.pods.values():
        owner = _top_owner(inputs, pod.metadata)
        if owner is not None:
            existing.setdefault(owner, []).append(pod)
    without_pods: dict[tuple[str, str], list[str]] = {}  # by kind and reason
    for key, (kind, obj) in inputs.pod_owners.items():
        if _top_owner(inputs, obj.metadata, own=key) != key:
            continue  # its pods are those of an owner above
        owned = owned_pods(kind, obj)
        pods = existing.get(key, [])
        why = "" if pods else _no_pods_reason(owned, rules)
        if why:
            without_pods.setdefault((key.kind, why), []).append(str(key))
            continue
        for pod in () if pods else _new_pods(owned):
            inputs.cluster.pods.setdefault(pod.metadata.key, pod)
            pods.append(inputs.cluster.pods[pod.metadata.key])
        _group(inputs, owned, pods, rules)
    for (kind_name, why), names in without_pods.items():
        inputs.notes.append(f"{kind_name} {listed_names(names, 1)}: makes no pods: {why}")


def _top_owner(inputs: InputCluster, meta: Meta, own: ObjectKey | None = None) -> ObjectKey | None:
    """Return the farthest owner in the input; None for the parts of a workload with an adapter."""
    found, owners = own, meta.owner_references
    for _ in range(MOST_OWNERS):
        owner = leading_owner(owners)
        if owner is None:
            break
        if kind_of_owner(owner) is not None:
            return None
        key = ObjectKey(owner.kind, meta.namespace, owner.name)
        is_known = (owner.api_version.rpartition("/")[0], owner.kind) in TEMPLATE_KINDS
        known = inputs.pod_owners.get(key) if is_known else None
        if known is None or (owner.uid and known[1].metadata.uid not in {UID, owner.uid}):
            break  # what is not in the input ends the chain, as what the podgrouper may not read
        found, owners = key, known[1].metadata.owner_references
    return found


def _no_pods_reason(owned: OwnedPods, rules: GroupingRules) -> str:
    if owned.group is None:
        return "it is being deleted"
    finding = other_scheduler_finding(owned, owned.kind, owned.form, rules.scheduler_name)
    if finding is not None:
        return str(finding)
    return "" if owned.pods else "its number of pods is 0"


def _new_pods(owned: OwnedPods) -> Iterable[Pod]:
    meta, template, uid = owned.metadata, owned.template, own_uid(owned.metadata)
    prefix = meta.name if owned.kind in _NUMBERED else f"{meta.name}-pod"
    check_pod_count(f"{owned.kind} {owned.key}", owned.pods)
    for index in range(owned.pods):
        pod = Meta(
            name=f"{prefix}-{index}",
            namespace=meta.namespace,
            uid=f"{uid}-{owned.kind}-{index:06}",
            creation_timestamp=meta.creation_timestamp,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owned.owner,),
        )
        yield Pod(metadata=pod, spec=template.spec, status=PodStatus(phase="Pending"))


def _group(
    inputs: InputCluster, owned: OwnedPods, pods: Iterable[Pod], rules: GroupingRules
) -> None:
    """Create the PodGroup of the pods of our scheduler that have none."""
    cluster, group = inputs.cluster, owned.group
    loose = [
        _loose_pod(it)
        for it in pods
        if it.spec.scheduler_name == rules.scheduler_name
        and POD_GROUP not in it.metadata.annotations
    ]
    if group is None or not loose or is_skipped(owned.metadata.annotations):
        return
    space = cluster.namespaces.get(group.namespace)
    choice = owner_queue(group, space.metadata.labels if space else {}, rules.default_queue)
    classes = SelectablePriorityClasses(cluster.priority_classes)
    wanted = default_podgroup(group, choice.queue, classes, rules.kind_defaults)
    steps = plan_default(wanted, ObservedState({}), loose, rules)
    for fields in steps.apply:
        created = new_podgroup(fields, owned.metadata, own_uid(owned.metadata))
        cluster.pod_groups.setdefault(created.metadata.key, created)
    for assign in steps.assign:
        cluster.pods[assign.key] = assigned_pod(cluster.pods[assign.key], assign)


def _loose_pod(pod: Pod) -> LoosePod:
    return LoosePod(
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        group="",
        is_bound=bool(pod.spec.node_name),
        labels=pod.metadata.labels,
        priority_class=pod.spec.priority_class_name,
        phase=pod.status.phase,
    )
