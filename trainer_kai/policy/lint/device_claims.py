"""Checks the names in claims of devices: of claims, ResourceClaimTemplates and DeviceClasses.

Claims that pods share by name are not looked up: there is one for each pod, and few are shared.
"""

from collections.abc import Iterator
from typing import Final

from trainer_kai.api.device_kinds import RequestedClass
from trainer_kai.api.meta import Key
from trainer_kai.api.text import listed_names
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_capacity import containers_at, pod_path
from trainer_kai.policy.lint.node_index import KnownCluster
from trainer_kai.policy.workloads.workload import StagedJobs

_MOST_LISTED: Final = 5  # names in a message


def unknown_claim_faults(jobset: StagedJobs) -> Iterator[Finding]:
    """Yield the names with which the API server refuses a pod: its Job retries for ever."""
    for i, job in enumerate(jobset.spec.replicated_jobs):
        names = [it.name for it in job.template.spec.template.spec.resource_claims]
        known = set(names)
        for path, container in containers_at(jobset, i):
            for n, use in enumerate(container.resources.claims):
                if use.name not in known:
                    remedy = (
                        f"Name one of these: {listed_names(names, _MOST_LISTED)}"
                        if names
                        else "It names none: add the claim there, or remove the name"
                    )
                    message = (
                        f"{use.name!r} is no name in spec.resourceClaims of the pod, so no pod "
                        f"can be created. {remedy}"
                    )
                    where = f"{path}.resources.claims[{n}].name"
                    yield Finding(where, message, blocks=True, code=FindingCode.UNKNOWN_CLAIM)


def device_claim_faults(
    jobset: StagedJobs, scheduler_name: str, cluster: KnownCluster
) -> Iterator[Finding]:
    """Either may be created later, so none of them blocks."""
    find = cluster.claim_template
    for i, job in enumerate(jobset.spec.replicated_jobs):
        pod = job.template.spec.template.spec
        if find is None or pod.scheduler_name not in {"", scheduler_name}:
            continue
        for n, use in enumerate(pod.resource_claims):
            name = use.resource_claim_template_name
            if not name:
                continue
            path = f"{pod_path(i)}.resourceClaims[{n}].resourceClaimTemplateName"
            key = Key(jobset.metadata.namespace, name)
            requested = find(key)
            if requested is None:
                message = (
                    f"ResourceClaimTemplate {name!r} does not exist in namespace {key.namespace}, "
                    "so no pod starts until it does"
                )
                yield Finding(path, message, code=FindingCode.UNKNOWN_CLAIM_TEMPLATE)
                continue
            for it in requested:
                yield from _class_fault(path, name, it, cluster)


def _class_fault(
    path: str, template: str, it: RequestedClass, cluster: KnownCluster
) -> Iterator[Finding]:
    known = cluster.device_classes
    if known is None or it.name in known:
        return
    remedy = (
        f"Name an existing one: {listed_names(sorted(known), _MOST_LISTED)}"
        if known
        else "None exists: install the driver of the devices"
    )
    message = (
        f"request {it.request!r} of ResourceClaimTemplate {template} names DeviceClass "
        f"{it.name!r}, which does not exist, so no pod starts until it does. {remedy}"
    )
    yield Finding(path, message, code=FindingCode.UNKNOWN_DEVICE_CLASS)
