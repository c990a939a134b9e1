"""Checks the names in claims of devices: of ResourceClaimTemplates, and of the DeviceClasses there.

Claims that pods share by name are not looked up: there is one for each pod, and few are shared.
"""

from collections.abc import Iterator
from typing import Final

from trainer_kai.api.device_kinds import RequestedClass
from trainer_kai.api.meta import Key
from trainer_kai.api.text import listed_names
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_capacity import pod_path
from trainer_kai.policy.lint.node_index import KnownCluster
from trainer_kai.policy.workloads.workload import StagedJobs

_MOST_LISTED: Final = 5  # names in a message


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
