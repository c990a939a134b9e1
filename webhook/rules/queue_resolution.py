"""Which queue a TrainJob will use, before its JobSet exists, and which field names the queue.

The precedence is that of `trainer_kai.policy`. Paths are fields of the TrainJob, since its author
can change no other object.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import QUEUE
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    resolve_queue,
)
from webhook.cache.queues import QueueTree
from webhook.cache.runtimes import RuntimeSummary
from webhook.rules.expected_jobset import (
    SlimRuntimePatch,
    expected_jobset,
    jobset_queue_path,
    patched_pod_queues,
    pod_queue_path,
)

QUEUE_LABEL_PATH: Final = f"metadata.labels[{QUEUE}]"
RUNTIME_REF_PATH: Final = "spec.runtimeRef"
_NOT_NAMED_BY_JOB: Final = frozenset({QueueSource.NAMESPACE, QueueSource.DEFAULT})


class RequestedQueue(NamedTuple):
    """A queue, and the field of the TrainJob that names it, or that names its runtime."""

    queue: str
    path: str  # "" where namespace or settings name it
    is_user_choice: bool = False  # named by a user, in an object of the namespace


class TrainJobQueues(NamedTuple):
    """The JobSet that will be built, the queue that each place names, and the one that wins."""

    runtime: RuntimeSummary
    jobset: JobSet
    sources: RequestedQueues
    choice: QueueChoice
    path: str  # the field of the TrainJob that names the queue, or could name one
    pod_queues: tuple[RequestedQueue, ...] = ()  # other queues that pod templates name

    @property
    def is_named(self) -> bool:
        """Say whether the TrainJob or its runtime names the queue."""
        return self.choice.source not in _NOT_NAMED_BY_JOB

    @property
    def queues(self) -> tuple[RequestedQueue, ...]:
        """Return every queue that the pods may use."""
        return RequestedQueue(
            self.choice.queue, self.path if self.is_named else ""
        ), *self.pod_queues


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
