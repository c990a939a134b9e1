"""Which queue a TrainJob will go to, said before there is a JobSet: by whom, and where he says it.

The order is that of `trainer_kai.policy.queues`; here are the places, as fields of a TrainJob, for
whoever made it reads no other object.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import QUEUE
from trainer_kai.policy.queues import Asked, Choice, Source, choose
from webhook.shape import Patch, Runtime, label_of_jobset, label_of_pods, shape

__all__ = ["LABEL", "RUNTIME", "Resolved", "resolve"]

LABEL: Final = f"metadata.labels[{QUEUE}]"
RUNTIME: Final = "spec.runtimeRef"
_UNSAID: Final = frozenset({Source.NAMESPACE, Source.DEFAULT})


class Resolved(NamedTuple):
    """The JobSet that will be built, what each place says, and what wins."""

    runtime: Runtime
    jobset: JobSet
    asked: Asked
    choice: Choice
    path: str  # of the TrainJob's field that names the queue, or where one could be named

    @property
    def is_said(self) -> bool:
        """Say whether TrainJob or runtime name the queue at all."""
        return self.choice.source not in _UNSAID


def resolve(
    labels: Mapping[str, str],
    patches: Sequence[Patch],
    runtime: Runtime,
    namespace: Mapping[str, str],
    default: str,
) -> Resolved:
    """Return which queue it will be; a runtime of which nothing is known names none."""
    jobset = shape(runtime, patches)
    jobs = jobset.spec.replicated_jobs
    asked = Asked(
        trainjob={QUEUE: labels[QUEUE]} if QUEUE in labels else {},
        runtime_queue=runtime.queue,
        jobset=jobset.metadata.labels,
        templates=tuple(job.template.spec.template.metadata.labels for job in jobs),
        namespace=namespace,
    )
    choice = choose(asked, default)
    return Resolved(runtime, jobset, asked, choice, _path(choice.source, jobset, patches))


def _path(source: Source, jobset: JobSet, patches: Sequence[Patch]) -> str:
    match source:
        case Source.RUNTIME:
            return RUNTIME
        case Source.JOBSET:
            return label_of_jobset(patches) or RUNTIME
        case Source.POD_TEMPLATE:
            jobs = jobset.spec.replicated_jobs
            first = next(it for it in jobs if it.template.spec.template.metadata.labels.get(QUEUE))
            return label_of_pods(patches, first.name) or RUNTIME
        case _:
            return LABEL
