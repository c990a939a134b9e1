"""The objects that `trainer-kai plan` compares workloads with: from files, or from a cluster."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trainer_kai.api.cluster_kinds import Namespace
from trainer_kai.api.device_kinds import (
    RequestedClass,
    ResourceClaim,
    ResourceClaimTemplate,
    requested_classes,
)
from trainer_kai.api.jobset import CronJob, ReplicatedJob
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_SLICES,
    TOPOLOGIES,
    TRAINJOBS,
    Resource,
)
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.cli.commands.plan.preview import Preview, runtime_key
from trainer_kai.cli.commands.plan.requests import ClaimGpus
from trainer_kai.cli.input.pod_owners import PodOwner, owned_pods
from trainer_kai.policy.finding import FindingCode
from trainer_kai.policy.lint.node_index import KnownCluster, NodeIndex
from trainer_kai.policy.queueing.topology_default import own_topology_default, topology_default
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE

if TYPE_CHECKING:
    from trainer_kai.cli.commands.plan.trial import TrialObjects

LINT_KINDS: Final = (NODES, QUEUES, PRIORITY_CLASSES, TOPOLOGIES)
DEVICE_KINDS: Final = (DEVICE_CLASSES, RESOURCE_SLICES, DEVICE_TAINT_RULES)  # only for claims

_MISSING: Final = (FindingCode.UNKNOWN_CLAIM_TEMPLATE, FindingCode.UNKNOWN_DEVICE_CLASS)

Submitted: TypeAlias = Object  # a workload without a TrainJob, or a CronJob


class PlanInput(NamedTuple):
    jobs: list[TrainJob]
    others: list[tuple[Resource[Any], Submitted]]
    runtimes: dict[tuple[str, Key], Runtime]
    namespaces: dict[str, Namespace]
    lint_objects: dict[str, dict[str, Any]]  # by kind and name
    fetched_kinds: set[str]  # of *lint_objects*: read from the cluster, not from files
    claim_templates: dict[Key, ResourceClaimTemplate]
    unlisted_namespaces: set[str]  # with claim templates that the user may not list
    resource_claims: dict[Key, ResourceClaim]

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it was not read."""
        known = self.namespaces.get(name)
        return known.metadata.labels if known else None

    def known_cluster(self) -> KnownCluster:
        """Return the objects to check against: all objects of a kind, or none."""
        nodes, queues, classes, topologies = (self.lint_objects.get(it.kind) for it in LINT_KINDS)
        device_classes = self.lint_objects.get(DEVICE_CLASSES.kind)
        knows_templates = self.claim_templates or CLAIM_TEMPLATES.kind in self.fetched_kinds
        return KnownCluster(
            nodes=NodeIndex(nodes.values()) if nodes else None,
            queues={name: it.spec for name, it in queues.items()} if queues else None,
            priorities=classes,
            topologies={name: it.spec for name, it in topologies.items()} if topologies else None,
            # The nodes of a live cluster can change, so they are no reason for exit code 1.
            autoscales=NODES.kind in self.fetched_kinds,
            topology_defaults={
                name: own_topology_default(it.metadata.annotations)
                for name, it in (queues or {}).items()
            },
            device_classes=None if device_classes is None else device_classes.keys(),
            claim_template=self._claim_template if knows_templates else None,
        )

    def _claim_template(self, key: Key) -> Iterable[RequestedClass] | None:
        template = self.claim_templates.get(key)
        if template is not None:
            return requested_classes(template.spec.spec)
        return () if key.namespace in self.unlisted_namespaces else None

    def namespaces_with_claims(self, *, shared: bool = False) -> set[str]:
        """Return the namespaces of the workloads whose pods have claims: by template, or shared."""
        return {
            it.metadata.namespace
            for kind, it in self.workloads()
            for job in self.jobs_of(kind, it)
            for use in job.template.spec.template.spec.resource_claims
            if (use.resource_claim_name if shared else use.resource_claim_template_name)
        }

    def workloads(self) -> Iterable[tuple[Resource[Any], Any]]:
        return (*((TRAINJOBS, it) for it in self.jobs), *self.others)

    def jobs_of(self, kind: Resource[Any], it: Any) -> Iterable[ReplicatedJob]:
        if isinstance(it, TrainJob):
            return self.runtimes[runtime_key(it)].spec.template.spec.replicated_jobs
        return replicated_jobs(kind, it)

    def claim_gpus(self) -> ClaimGpus:
        classes = self.lint_objects.get(DEVICE_CLASSES.kind)
        return ClaimGpus(classes, self.claim_templates, self.resource_claims)

    def is_tried(self, preview: Preview, kind: Resource[Any], it: Any) -> bool:
        """Say whether it is worth a trial where the pods start: for a domain, or for devices."""
        if not self.lint_objects.get(NODES.kind) or not preview.podgroups or preview.is_blocked:
            return False
        if any(job.template.spec.template.spec.resource_claims for job in self.jobs_of(kind, it)):
            is_listed = preview.key.namespace not in self.unlisted_namespaces
            is_known = {RESOURCE_SLICES.kind, DEVICE_CLASSES.kind} <= self.lint_objects.keys()
            return is_listed and is_known and not any(f.code in _MISSING for f in preview.findings)
        specs = json.dumps([fields["spec"] for fields in preview.manifests])
        return "topologyConstraint" in specs or self._has_topology_default(preview.queue.queue)

    def _has_topology_default(self, queue: str) -> bool:
        queues = self.lint_objects.get(QUEUES.kind, {})
        own = {name: own_topology_default(it.metadata.annotations) for name, it in queues.items()}

        def parent_of(name: str) -> str:
            return queues[name].spec.parent_queue if name in queues else ""

        return topology_default(queue, parent_of, own) is not None

    def trial_objects(self) -> "TrialObjects":
        from trainer_kai.cli.commands.plan.trial import TrialObjects  # noqa: PLC0415 - it imports numpy

        kinds = (*LINT_KINDS, *DEVICE_KINDS)
        nodes, queues, priorities, topologies, classes, slices, rules = (
            self.lint_objects.get(it.kind, {}) for it in kinds
        )
        return TrialObjects(
            nodes=nodes,
            queues=queues,
            priority_classes=priorities,
            topologies=topologies,
            namespaces=self.namespaces,
            runtimes=self.runtimes,
            device_classes=classes,
            resource_slices=slices,
            device_taint_rules=rules,
            claim_templates=self.claim_templates,
            resource_claims=self.resource_claims,
        )


def replicated_jobs(kind: Resource[Any], it: Submitted) -> Iterable[ReplicatedJob]:
    if isinstance(it, CronJob):
        return (ReplicatedJob(name="", template=it.spec.job_template),)
    if isinstance(it, PodOwner):
        return owned_pods(kind, it).spec.replicated_jobs
    workload = KIND_OF_RESOURCE[kind].adapt(it)
    return workload.spec.replicated_jobs if workload is not None else ()
