"""What admission looks at in a runtime, and in the JobSet that will be made of it.

That is little: labels that name a queue or mark a group, annotations that place pods, scheduler
names. Containers are not even read, so a runtime may be as large as it likes. Of one with more
replicatedJobs than are planned only the first are kept: its JobSet is refused anyway.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.job import JobSpec, JobTemplate
from trainer_kai.api.jobset import JobSet, JobSetSpec, ReplicatedJob
from trainer_kai.api.meta import Meta, TemplateMeta
from trainer_kai.api.names import (
    COSCHEDULING_GROUP,
    EXCLUSIVE_TOPOLOGY,
    NODE_SELECTOR_STRATEGY,
    QUEUE,
    VOLCANO_GROUP,
)
from trainer_kai.api.pod import PodSpec, PodTemplate
from trainer_kai.api.runtime import PodGroupPolicy
from trainer_kai.policy.units import MOST_JOBS

__all__ = [
    "PATCHES",
    "Patch",
    "Runtime",
    "SlimTemplate",
    "annotated_by",
    "label_of_jobset",
    "label_of_pods",
    "queue_of_jobset",
    "queues_of_pods",
    "runtime_of",
    "shape",
]

PATCHES: Final = "spec.runtimePatches"
_LABELS: Final = (QUEUE, COSCHEDULING_GROUP)
_ANNOTATIONS: Final = (EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY, VOLCANO_GROUP)
_SPEC: Final = "trainingRuntimeSpec.template"


class _SlimPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    scheduler_name: str = ""


class _SlimPodTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimPodSpec = _SlimPodSpec()


class _SlimJobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: _SlimPodTemplate = _SlimPodTemplate()


class _SlimJobTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSpec = _SlimJobSpec()


class _SlimReplicatedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str = ""
    template: _SlimJobTemplate = _SlimJobTemplate()


class _SlimJobSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    replicated_jobs: tuple[_SlimReplicatedJob, ...] = ()


class SlimTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The template of a runtime, or what is laid over one."""

    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSetSpec = _SlimJobSetSpec()


class _SlimPatchSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: SlimTemplate = SlimTemplate()


class Patch(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One entry of a TrainJob's runtimePatches."""

    training_runtime_spec: _SlimPatchSpec = _SlimPatchSpec()


class Runtime(NamedTuple):
    """What is kept of a runtime."""

    queue: str = ""  # by its own field
    others: tuple[str, ...] = ()  # schedulers that its policies choose
    jobset: TemplateMeta = TemplateMeta()
    jobs: tuple[ReplicatedJob, ...] = ()
    left_out: int = 0  # so many more replicatedJobs than are planned


def runtime_of(policy: PodGroupPolicy | None, template: SlimTemplate) -> Runtime:
    """Return what is kept of a runtime."""
    policy = policy or PodGroupPolicy()
    chosen = {"coscheduling": policy.coscheduling, "volcano": policy.volcano}
    jobs = template.spec.replicated_jobs
    return Runtime(
        queue=policy.kai_scheduler.queue if policy.kai_scheduler else "",
        others=tuple(name for name, asked in chosen.items() if asked is not None),
        jobset=_kept(template.metadata),
        jobs=tuple(map(_kept_job, jobs[:MOST_JOBS])),
        left_out=max(0, len(jobs) - MOST_JOBS),
    )


def shape(runtime: Runtime, patches: Sequence[Patch]) -> JobSet:
    """Return the JobSet that will be built, as far as admission looks at it."""
    overs = [patch.training_runtime_spec.template for patch in patches]
    by_name = [{job.name: job.template for job in over.spec.replicated_jobs} for over in overs]
    whole = _laid(runtime.jobset, [over.metadata for over in overs])
    jobs = [
        _patched(job, [over[job.name] for over in by_name if job.name in over], runtime.others)
        for job in runtime.jobs
    ]
    meta = Meta(labels=whole.labels, annotations=whole.annotations)
    return JobSet(metadata=meta, spec=JobSetSpec(replicated_jobs=tuple(jobs)))


def label_of_jobset(patches: Sequence[Patch]) -> str:
    """Return the path of the patch that names the queue of the JobSet; "" for none."""
    for number, over in _last_first(patches):
        if QUEUE in over.metadata.labels:
            return f"{PATCHES}[{number}].{_SPEC}.metadata.labels[{QUEUE}]"
    return ""


def label_of_pods(patches: Sequence[Patch], name: str) -> str:
    """Return the path of the patch that names the queue of a replicatedJob's pods; "" for none."""
    for number, over in _last_first(patches):
        for at, job in enumerate(over.spec.replicated_jobs):
            if job.name == name and QUEUE in job.template.spec.template.metadata.labels:
                path = f"{PATCHES}[{number}].{_SPEC}.spec.replicatedJobs[{at}]"
                return f"{path}.template.spec.template.metadata.labels[{QUEUE}]"
    return ""


def queue_of_jobset(patches: Sequence[Patch]) -> str | None:
    """Return which queue patches name for the JobSet; what is said last holds."""
    labels = (over.metadata.labels for _, over in _last_first(patches))
    return next((it[QUEUE] for it in labels if QUEUE in it), None)


def queues_of_pods(patches: Sequence[Patch]) -> dict[str, str]:
    """Return which queues patches name for pods, by replicatedJob."""
    found: dict[str, str] = {}
    for _, over in _last_first(patches):
        for job in over.spec.replicated_jobs:
            labels = job.template.spec.template.metadata.labels
            if QUEUE in labels:
                found.setdefault(job.name, labels[QUEUE])
    return found


def annotated_by(patches: Sequence[Patch], name: str) -> bool:
    """Say whether some patch carries an annotation, of the JobSet or of a Job."""
    return any(
        name in over.metadata.annotations
        or any(name in job.template.metadata.annotations for job in over.spec.replicated_jobs)
        for _, over in _last_first(patches)
    )


def _last_first(patches: Sequence[Patch]) -> Iterator[tuple[int, SlimTemplate]]:
    for number in reversed(range(len(patches))):
        yield number, patches[number].training_runtime_spec.template


def _laid(base: TemplateMeta, overs: Iterable[TemplateMeta]) -> TemplateMeta:
    """Lay labels and annotations over each other; what is said last holds."""
    labels, annotations = dict(base.labels), dict(base.annotations)
    for over in overs:
        labels |= _of(over.labels, _LABELS)
        annotations |= _of(over.annotations, _ANNOTATIONS)
    return TemplateMeta(labels=labels, annotations=annotations)


def _patched(
    job: ReplicatedJob, overs: Sequence[_SlimJobTemplate], others: Sequence[str]
) -> ReplicatedJob:
    """Return a replicatedJob with what patches say, and the mark of another scheduler's group."""
    template = job.template
    pods = template.spec.template
    marks = TemplateMeta(
        labels={COSCHEDULING_GROUP: ""} if "coscheduling" in others else {},
        annotations={VOLCANO_GROUP: ""} if "volcano" in others else {},
    )
    metadata = _laid(pods.metadata, [*(it.spec.template.metadata for it in overs), marks])
    return _job(
        job.name,
        _laid(template.metadata, [it.metadata for it in overs]),
        PodTemplate(metadata=metadata, spec=pods.spec),
    )


def _kept_job(job: _SlimReplicatedJob) -> ReplicatedJob:
    pods = job.template.spec.template
    spec = PodSpec(scheduler_name=pods.spec.scheduler_name)
    return _job(
        job.name,
        _kept(job.template.metadata),
        PodTemplate(metadata=_kept(pods.metadata), spec=spec),
    )


def _job(name: str, metadata: TemplateMeta, pods: PodTemplate) -> ReplicatedJob:
    return ReplicatedJob(
        name=name, template=JobTemplate(metadata=metadata, spec=JobSpec(template=pods))
    )


def _kept(metadata: TemplateMeta) -> TemplateMeta:
    return _laid(TemplateMeta(), [metadata])


def _of(given: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: given[name] for name in names if name in given}
