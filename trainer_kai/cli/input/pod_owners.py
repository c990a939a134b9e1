"""Objects of kinds without an adapter whose pods are known: those of one pod template.

The podgrouper never reads a template: it groups the pods that exist, by their owners. Here the same
rules are applied to the pods that the object will have.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from trainer_kai.api.jobset import JobSetSpec, JobSpec, JobTemplate, ReplicatedJob
from trainer_kai.api.meta import Key, Meta, OwnerReference, TemplateMeta
from trainer_kai.api.names import KUBEFLOW, NOTEBOOK_STOPPED
from trainer_kai.api.pod import PodTemplate
from trainer_kai.api.resources import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Resource
from trainer_kai.cli.input.named_kinds import POD_OWNERS
from trainer_kai.policy.podgroups.default_group import DefaultGroup, PodRequest
from trainer_kai.policy.workloads.job import ONLY_JOB
from trainer_kai.policy.workloads.owner_chain import OwnerChain, group_subject, owner_record
from trainer_kai.policy.workloads.workload import JobsForm

_NOTEBOOK: Final = "Notebook"


class PodOwnerSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    replicas: int | None = None
    template: PodTemplate = PodTemplate()
    pod_management_policy: str = ""  # of StatefulSets


class PodOwner(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: PodOwnerSpec = PodOwnerSpec()


TEMPLATE_KINDS: Final[Mapping[tuple[str, str], Resource[PodOwner]]] = {
    (it.group, it.kind): it
    for it in (
        DEPLOYMENTS.with_struct(PodOwner),
        REPLICA_SETS.with_struct(PodOwner),
        STATEFUL_SETS.with_struct(PodOwner),
        Resource(KUBEFLOW, "v1", "notebooks", _NOTEBOOK, namespaced=True, struct=PodOwner),
    )
}
_UNKNOWN_PODS: Final = {it.group_kind for it in POD_OWNERS} - TEMPLATE_KINDS.keys()


class OwnedPods(NamedTuple):
    """The pods of an object, in the form of a JobSet with one job."""

    kind: str
    metadata: Meta
    spec: JobSetSpec
    owner: OwnerReference
    group: DefaultGroup | None  # None: it is being deleted

    @property
    def key(self) -> Key:
        return self.metadata.key

    @property
    def form(self) -> JobsForm:
        return JobsForm(self.kind, "")

    @property
    def pods(self) -> int:
        return self.spec.replicated_jobs[0].template.spec.parallelism or 0

    @property
    def has_replicas(self) -> bool:
        return self.kind != _NOTEBOOK

    @property
    def template(self) -> PodTemplate:
        return self.spec.replicated_jobs[0].template.spec.template


def owned_pods(resource: Resource[PodOwner], it: PodOwner) -> OwnedPods:
    meta, template = it.metadata, it.spec.template
    pods = max(1 if it.spec.replicas is None else it.spec.replicas, 0)
    if resource.kind == _NOTEBOOK:  # its controller copies what the notebook says to the only pod
        own = TemplateMeta(labels=meta.labels, annotations=meta.annotations)
        template = replace(template, metadata=own)
        pods = 0 if NOTEBOOK_STOPPED in meta.annotations else 1
    owner = OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
    )
    is_ordered = resource.kind == STATEFUL_SETS.kind and it.spec.pod_management_policy != "Parallel"
    record = owner_record(owner, meta, is_ordered=is_ordered)
    subject = group_subject(OwnerChain(meta.namespace, (record,))) if record is not None else None
    request = PodRequest(template.metadata.labels, template.spec.priority_class_name)
    job = ReplicatedJob(
        name=ONLY_JOB,
        template=JobTemplate(
            metadata=template.metadata,
            spec=JobSpec(parallelism=pods, completions=pods, template=template),
        ),
    )
    group = DefaultGroup(meta.namespace, owner, subject, request) if subject is not None else None
    return OwnedPods(resource.kind, meta, JobSetSpec(replicated_jobs=(job,)), owner, group)


def unknown_pods_note(group: str, kind: str) -> str:
    """Return why an object of a kind is ignored although the podgrouper groups its pods."""
    if (group, kind) not in _UNKNOWN_PODS:
        return ""
    return ", because only its controller knows its pods: add these instead"
