"""What the pods of a PodGroup request together: resources, shares of GPUs, and GPUs of claims."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trainer_kai.api.device_kinds import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    requested_classes,
)
from trainer_kai.api.gpu_requests import WHOLE_GPU, read_devices, read_fraction, read_memory_mib
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import GPU_FRACTION, GPU_FRACTION_DEVICES, GPU_MEMORY
from trainer_kai.api.pod import PodResourceClaim
from trainer_kai.policy.podgroups.grouping import PlannedPodGroup
from trainer_kai.policy.pods.requests import format_amounts, pod_requests
from trainer_kai.policy.workloads.workload import StagedJobs

if TYPE_CHECKING:
    from scheduler.state.claims.claim_shapes import ShapeReader

GPUS_OF_CLAIMS: Final = "GPUs of claims"


class ClaimGpus:
    """How many GPUs a claim of a pod requests at least, as queues are charged for it.

    Without any known class a claim is read as if its classes existed, without selectors.
    """

    def __init__(
        self,
        classes: Mapping[str, DeviceClass] | None,
        templates: Mapping[Key, ResourceClaimTemplate],
        claims: Mapping[Key, ResourceClaim],
    ) -> None:
        self._classes = classes
        self._templates = templates
        self._claims = claims
        self._reader: ShapeReader | None = None

    def of(self, namespace: str, use: PodResourceClaim) -> int:
        spec = self._spec(namespace, use)
        if spec is None:
            return 0
        from scheduler.state.claims.claim_shapes import ShapeFault, ShapeReader  # noqa: PLC0415 - it imports numpy
        from scheduler.state.claims.selectors import Selectors  # noqa: PLC0415 - as above

        if self._classes is None:
            names = [it.name for it in requested_classes(spec)]
            assumed = {name: DeviceClass(metadata=Meta(name=name)) for name in names}
            shape = ShapeReader(assumed, Selectors()).read(namespace, spec)
        else:
            self._reader = self._reader or ShapeReader(self._classes, Selectors())
            shape = self._reader.read(namespace, spec)
        return 0 if isinstance(shape, ShapeFault) else shape.gpus

    def _spec(self, namespace: str, use: PodResourceClaim) -> ResourceClaimSpec | None:
        if use.resource_claim_name:
            claim = self._claims.get(Key(namespace, use.resource_claim_name))
            return claim.spec if claim is not None else None
        template = self._templates.get(Key(namespace, use.resource_claim_template_name))
        return template.spec.spec if template is not None else None


NO_CLAIMS: Final = ClaimGpus(None, {}, {})


def total_requests(
    workload: StagedJobs, podgroup: PlannedPodGroup, claims: ClaimGpus, counted: set[str]
) -> Mapping[str, str]:
    """Return the amounts as text; *counted* are the shared claims that were counted before."""
    resources = format_amounts(_total_resources(workload, podgroup))
    gpus = _total_claim_gpus(workload, podgroup, claims, counted)
    of_claims = {GPUS_OF_CLAIMS: str(gpus)} if gpus else {}
    return {**resources, **_total_shares(workload, podgroup), **of_claims}


def _total_resources(workload: StagedJobs, podgroup: PlannedPodGroup) -> Mapping[str, int]:
    jobs = {job.name: job for job in workload.spec.replicated_jobs}
    total: dict[str, int] = {}
    for member in podgroup.subgroups:
        requests = pod_requests(jobs[member.name].template.spec.template.spec)
        for name, amount in requests.items():
            total[name] = total.get(name, 0) + amount * member.replicas * member.pods
    return total


def _total_claim_gpus(
    workload: StagedJobs, podgroup: PlannedPodGroup, claims: ClaimGpus, counted: set[str]
) -> int:
    """Count each GPU once: those of a claim that several pods share do not multiply."""
    jobs = {job.name: job for job in workload.spec.replicated_jobs}
    total = 0
    for member in podgroup.subgroups:
        for use in jobs[member.name].template.spec.template.spec.resource_claims:
            shared = use.resource_claim_name
            if shared in counted or not member.total_pods:
                continue
            pods = 1 if shared else member.total_pods
            total += pods * claims.of(workload.metadata.namespace, use)
            counted.update({shared} - {""})
    return total


def _total_shares(workload: StagedJobs, podgroup: PlannedPodGroup) -> Mapping[str, str]:
    """Return the shares of GPUs that all pods request, in GPUs and in MiB; not invalid ones."""
    jobs = {job.name: job for job in workload.spec.replicated_jobs}
    total: dict[str, int] = {}
    for member in podgroup.subgroups:
        annotations = jobs[member.name].template.spec.template.metadata.annotations
        devices = read_devices(annotations.get(GPU_FRACTION_DEVICES, "1"))
        for name, read in ((GPU_FRACTION, read_fraction), (GPU_MEMORY, read_memory_mib)):
            share = read(annotations[name]) if name in annotations else 0
            if share and isinstance(share, int) and isinstance(devices, int):
                count = devices * member.replicas * member.pods
                total[name] = total.get(name, 0) + share * count
    return {
        name: f"{amount / WHOLE_GPU:.12g}" if name == GPU_FRACTION else f"{amount}Mi"
        for name, amount in total.items()
    }
