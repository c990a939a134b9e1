"""What will become of a TrainJob: its JobSet, the queue of that, and which field names the queue.

Trainer builds the JobSet of the runtime and its patches; only what admission reads is built here.
The precedence of queues is that of `trainer_kai.policy`. Paths are fields of the TrainJob, since
its author can change no other object.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.jobset import JobSet, JobSetSpec, ReplicatedJob
from trainer_kai.api.meta import Meta, TemplateMeta
from trainer_kai.api.names import COSCHEDULING_GROUP, QUEUE, VOLCANO_GROUP
from trainer_kai.api.pod import PodTemplate
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    resolve_queue,
)
from webhook.cache.admission_cache import QueueTree
from webhook.cache.runtimes import (
    RuntimeSummary,
    SlimJobSetTemplate,
    SlimJobTemplate,
    overlaid_metadata,
    replicated_job,
)

QUEUE_LABEL_PATH: Final = f"metadata.labels[{QUEUE}]"
RUNTIME_REF_PATH: Final = "spec.runtimeRef"
PATCHES: Final = "spec.runtimePatches"
_NOT_NAMED_BY_JOB: Final = frozenset({QueueSource.NAMESPACE, QueueSource.DEFAULT})
_SPEC: Final = "trainingRuntimeSpec.template"


class _SlimPatchSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: SlimJobSetTemplate = SlimJobSetTemplate()


class SlimRuntimePatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    training_runtime_spec: _SlimPatchSpec = _SlimPatchSpec()


class RequestedQueue(NamedTuple):
    """A queue, and the field of the TrainJob that names it, or that names its runtime."""

    queue: str
    path: str  # "" where namespace or settings name it
    is_user_choice: bool = False  # named by a user, in an object of the namespace


class TrainJobQueues(NamedTuple):
    runtime: RuntimeSummary
    jobset: JobSet
    sources: RequestedQueues
    choice: QueueChoice
    path: str  # the field of the TrainJob that names the queue, or could name one
    pod_queues: tuple[RequestedQueue, ...] = ()  # other queues that pod templates name

    @property
    def is_named(self) -> bool:
        return self.choice.source not in _NOT_NAMED_BY_JOB

    @property
    def queues(self) -> tuple[RequestedQueue, ...]:
        """Return every queue that the pods may use."""
        chosen = RequestedQueue(self.choice.queue, self.path if self.is_named else "")
        return chosen, *self.pod_queues


def resolve_trainjob_queues(
    labels: Mapping[str, str],
    patches: Sequence[SlimRuntimePatch],
    runtime: RuntimeSummary | None,
    namespace: Mapping[str, str],
    default: str,
) -> TrainJobQueues:
    """Return the queue; if the runtime is unknown, only the TrainJob and its patches count."""
    jobset = expected_jobset(runtime or RuntimeSummary(), patches)
    pods = patched_pod_queues(patches) if runtime is None else _queues_of_templates(jobset)
    sources = RequestedQueues(
        trainjob={QUEUE: labels[QUEUE]} if QUEUE in labels else {},
        runtime_queue=runtime.queue if runtime else "",
        jobset=jobset.metadata.labels,
        templates=tuple({QUEUE: queue} for queue in pods.values()),
        namespace=namespace,
    )
    choice = resolve_queue(sources, default)
    path = _choice_path(choice, pods, patches)
    pod_queues = tuple(RequestedQueue(it, _pods_path(it, pods, patches)) for it in choice.others)
    return TrainJobQueues(runtime or RuntimeSummary(), jobset, sources, choice, path, pod_queues)


def unusable_queue_message(choice: QueueChoice, queues: QueueTree) -> str | None:
    """Say why the queue of a TrainJob cannot hold workloads; None if it can."""
    reason = queues.unusable_reason(choice.queue)
    if reason is None:
        return None
    given_by = "" if choice.source is QueueSource.TRAINJOB else f" (from {choice.source.value})"
    return f"queue {choice.queue!r}{given_by} {reason}"


def _queues_of_templates(jobset: JobSet) -> dict[str, str]:
    """Return the queues that pod templates name, by replicatedJob."""
    jobs = jobset.spec.replicated_jobs
    labels = {it.name: it.template.spec.template.metadata.labels for it in jobs}
    return {name: value[QUEUE] for name, value in labels.items() if QUEUE in value}


def _choice_path(
    choice: QueueChoice, pods: Mapping[str, str], patches: Sequence[SlimRuntimePatch]
) -> str:
    match choice.source:
        case QueueSource.RUNTIME:
            return RUNTIME_REF_PATH
        case QueueSource.JOBSET:
            return jobset_queue_path(patches) or RUNTIME_REF_PATH
        case QueueSource.POD_TEMPLATE:
            return _pods_path(choice.queue, pods, patches)
        case _:
            return QUEUE_LABEL_PATH


def _pods_path(queue: str, pods: Mapping[str, str], patches: Sequence[SlimRuntimePatch]) -> str:
    first = next(name for name, value in pods.items() if value == queue)
    return pod_queue_path(patches, first) or RUNTIME_REF_PATH


def expected_jobset(runtime: RuntimeSummary, patches: Sequence[SlimRuntimePatch]) -> JobSet:
    overlays = [patch.training_runtime_spec.template for patch in patches]
    by_name = [
        {job.name: job.template for job in overlay.spec.replicated_jobs} for overlay in overlays
    ]
    jobs = []
    for job in runtime.jobs:
        templates = [overlay[job.name] for overlay in by_name if job.name in overlay]
        jobs.append(_patched_job(job, templates, runtime.other_schedulers))
    metadata = overlaid_metadata(runtime.jobset_metadata, [it.metadata for it in overlays])
    meta = Meta(labels=metadata.labels, annotations=metadata.annotations)
    return JobSet(metadata=meta, spec=JobSetSpec(replicated_jobs=tuple(jobs)))


def _patched_job(
    job: ReplicatedJob, overlays: Sequence[SlimJobTemplate], other_schedulers: Sequence[str]
) -> ReplicatedJob:
    """Return a replicatedJob with its patches, and with the marks of other schedulers."""
    template = job.template
    pods = template.spec.template
    marks = TemplateMeta(
        labels={COSCHEDULING_GROUP: ""} if "coscheduling" in other_schedulers else {},
        annotations={VOLCANO_GROUP: ""} if "volcano" in other_schedulers else {},
    )
    of_pods = [*(it.spec.template.metadata for it in overlays), marks]
    pod_template = PodTemplate(metadata=overlaid_metadata(pods.metadata, of_pods), spec=pods.spec)
    metadata = overlaid_metadata(template.metadata, [it.metadata for it in overlays])
    return replicated_job(job.name, metadata, pod_template)


def jobset_queue_path(patches: Sequence[SlimRuntimePatch]) -> str:
    """Return the path of the patch that names the queue of the JobSet; "" for none."""
    for number, overlay in _last_first(patches):
        if QUEUE in overlay.metadata.labels:
            return f"{PATCHES}[{number}].{_SPEC}.metadata.labels[{QUEUE}]"
    return ""


def pod_queue_path(patches: Sequence[SlimRuntimePatch], name: str) -> str:
    """Return the path of the patch that names the queue of a replicatedJob's pods; "" for none."""
    for number, overlay in _last_first(patches):
        for position, job in enumerate(overlay.spec.replicated_jobs):
            if job.name == name and QUEUE in job.template.spec.template.metadata.labels:
                path = f"{PATCHES}[{number}].{_SPEC}.spec.replicatedJobs[{position}]"
                return f"{path}.template.spec.template.metadata.labels[{QUEUE}]"
    return ""


def patched_jobset_queue(patches: Sequence[SlimRuntimePatch]) -> str | None:
    """Return the queue that patches name for the JobSet; the last patch has precedence."""
    labels = (overlay.metadata.labels for _, overlay in _last_first(patches))
    return next((it[QUEUE] for it in labels if QUEUE in it), None)


def patched_pod_queues(patches: Sequence[SlimRuntimePatch]) -> dict[str, str]:
    """Return the queues that patches name for pods, by replicatedJob."""
    queues: dict[str, str] = {}
    for _, overlay in _last_first(patches):
        for job in overlay.spec.replicated_jobs:
            labels = job.template.spec.template.metadata.labels
            if QUEUE in labels:
                queues.setdefault(job.name, labels[QUEUE])
    return queues


def patches_annotation(patches: Sequence[SlimRuntimePatch], name: str) -> bool:
    return any(
        name in overlay.metadata.annotations
        or any(name in job.template.metadata.annotations for job in overlay.spec.replicated_jobs)
        for _, overlay in _last_first(patches)
    )


def _last_first(patches: Sequence[SlimRuntimePatch]) -> Iterator[tuple[int, SlimJobSetTemplate]]:
    for number in reversed(range(len(patches))):
        yield number, patches[number].training_runtime_spec.template
