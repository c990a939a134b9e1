"""The labels and annotations that admission copies from a TrainJob to its JobSet.

A value that the JobSet has already stays. Trainer itself copies no labels and annotations. A
request for shares of GPUs is copied to the pod templates, because it is each pod that requests.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import (
    ANCESTOR_STEP,
    BATCH_MIN_MEMBER,
    GPU_CONTAINER,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    NODE_POOL,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    SKIP_PODGROUPER,
    STALENESS_GRACE_PERIOD,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.policy.stages import INITIALIZERS

__all__ = [
    "CARRIED_ANNOTATIONS",
    "CARRIED_LABELS",
    "CARRIED_SHARES",
    "carried_shares",
    "with_carried_metadata",
]

CARRIED_LABELS: Final = (PRIORITY_CLASS_NAME, PREEMPTIBILITY, NODE_POOL)
CARRIED_ANNOTATIONS: Final = (
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    BATCH_MIN_MEMBER,
    PREEMPTION_DELAY,
    STALENESS_GRACE_PERIOD,
    SKIP_PODGROUPER,
)
CARRIED_SHARES: Final = (GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES, GPU_CONTAINER)


def carried_shares(job: ReplicatedJob, annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return the request for shares of GPUs that pods get from the annotations of their TrainJob.

    Initializers get none, and a pod template keeps a request of its own.
    """
    own = job.template.spec.template.metadata.annotations
    is_initializer = job.template.metadata.labels.get(ANCESTOR_STEP) in INITIALIZERS
    if is_initializer or not own.keys().isdisjoint(CARRIED_SHARES):
        return {}
    return _selected(annotations, CARRIED_SHARES)


def with_carried_metadata(
    jobset: JobSet, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> JobSet:
    """Return a JobSet with the metadata that admission copies from its TrainJob."""
    meta = jobset.metadata
    jobs = (_with_shares(job, annotations) for job in jobset.spec.replicated_jobs)
    return replace(
        jobset,
        spec=replace(jobset.spec, replicated_jobs=tuple(jobs)),
        metadata=replace(
            meta,
            labels={**_selected(labels, CARRIED_LABELS), **meta.labels},
            annotations={**_selected(annotations, CARRIED_ANNOTATIONS), **meta.annotations},
        ),
    )


def _with_shares(job: ReplicatedJob, annotations: Mapping[str, str]) -> ReplicatedJob:
    shares = carried_shares(job, annotations)
    if not shares:
        return job
    pods = job.template.spec.template
    meta = replace(pods.metadata, annotations={**pods.metadata.annotations, **shares})
    spec = replace(job.template.spec, template=replace(pods, metadata=meta))
    return replace(job, template=replace(job.template, spec=spec))


def _selected(source: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
    return {name: source[name] for name in names if name in source}
