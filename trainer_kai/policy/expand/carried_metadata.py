"""The labels and annotations that admission copies from a TrainJob to its JobSet.

A value that the JobSet has already stays. Trainer itself copies no labels and annotations.

Shares of GPUs are requested by annotations of pods, so that they are copied to the pod templates of
the replicatedJobs that train: those to which Trainer gives `resourcesPerNode`, and the workers of
MPI. A launcher of MPI that is no worker has no use for a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from trainer_kai.api.gpu_share import SHARE_REQUESTS
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import (
    ANCESTOR_STEP,
    BATCH_MIN_MEMBER,
    GPU_CONTAINER,
    GPU_FRACTION,
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
from trainer_kai.api.runtime import MLPolicy
from trainer_kai.policy.stages import INITIALIZERS

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
CARRIED_TO_PODS: Final = SHARE_REQUESTS

_TRAINER: Final = "trainer"  # the label value of the step that trains
_NODE: Final = "node"  # the container that trains, and with MPI the replicatedJob of the workers


def launcher_trains(policy: MLPolicy | None) -> bool:
    """Say whether the launcher of a runtime is one of its nodes; without MPI there is none."""
    return policy is None or policy.mpi is None or policy.mpi.run_launcher_as_node


def carried_to_pods(
    jobs: Sequence[ReplicatedJob], annotations: Mapping[str, str], *, with_launcher: bool = True
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield each replicatedJob with the annotations of the TrainJob that its pods get.

    A template that requests a share itself stays as it is. If no container is named it is the one
    that trains, to which `resourcesPerNode` applies as well.
    """
    given = _selected(annotations, CARRIED_TO_PODS)
    workers = sum(job.name == _NODE for job in jobs)
    for i, job in enumerate(jobs if given else ()):
        template = job.template.spec.template
        own, step = template.metadata.annotations, job.template.metadata.labels.get(ANCESTOR_STEP)
        is_launcher = step == _TRAINER and job.name != _NODE and workers > 0
        is_worker = job.name == _NODE and step not in INITIALIZERS
        trains = with_launcher if is_launcher else (step == _TRAINER or is_worker)
        if not trains or GPU_FRACTION in own or GPU_MEMORY in own:
            continue
        names = [it.name for it in template.spec.containers]
        default = {GPU_CONTAINER: _NODE} if _NODE in names[1:] else {}
        added = {name: it for name, it in {**default, **given}.items() if name not in own}
        if added:
            yield i, added


def with_carried_metadata(
    jobset: JobSet,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    with_launcher: bool = True,
) -> JobSet:
    """Return a JobSet with the metadata that admission copies from its TrainJob."""
    meta = jobset.metadata
    jobs = list(jobset.spec.replicated_jobs)
    for i, added in carried_to_pods(jobs, annotations, with_launcher=with_launcher):
        jobs[i] = _with_pod_annotations(jobs[i], added)
    return replace(
        jobset,
        spec=replace(jobset.spec, replicated_jobs=tuple(jobs)),
        metadata=replace(
            meta,
            labels={**_selected(labels, CARRIED_LABELS), **meta.labels},
            annotations={**_selected(annotations, CARRIED_ANNOTATIONS), **meta.annotations},
        ),
    )


def _with_pod_annotations(job: ReplicatedJob, added: Mapping[str, str]) -> ReplicatedJob:
    spec = job.template.spec
    meta = spec.template.metadata
    meta = replace(meta, annotations={**meta.annotations, **added})
    pods = replace(spec.template, metadata=meta)
    return replace(job, template=replace(job.template, spec=replace(spec, template=pods)))


def _selected(source: Mapping[str, str], names: tuple[str, ...]) -> Mapping[str, str]:
    return {name: source[name] for name in names if name in source}
