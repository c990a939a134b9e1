"""Which queue a TrainJob will go to, said before there is a JobSet: by whom, and where he says it.

The order is that of `trainer_kai.policy.queues`; here are the places, as fields of a TrainJob, for
whoever made it reads no other object.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import QUEUE
from trainer_kai.policy.queues import Asked, Choice, Source, choose
from webhook.shape import (
    Patch,
    Runtime,
    label_of_jobset,
    label_of_pods,
    queues_of_pods,
    shape,
)

__all__ = ["LABEL", "RUNTIME", "Resolved", "Wanted", "resolve"]

LABEL: Final = f"metadata.labels[{QUEUE}]"
RUNTIME: Final = "spec.runtimeRef"
_UNSAID: Final = frozenset({Source.NAMESPACE, Source.DEFAULT})


class Wanted(NamedTuple):
    """A queue, and the field of the TrainJob that names it, or the runtime that does."""

    queue: str
    path: str  # "" where namespace or settings name it
    is_chosen: bool = False  # by a user who writes in the namespace


class Resolved(NamedTuple):
    """The JobSet that will be built, what each place says, and what wins."""

    runtime: Runtime
    jobset: JobSet
    asked: Asked
    choice: Choice
    path: str  # of the TrainJob's field that names the queue, or where one could be named
    beside: tuple[Wanted, ...] = ()  # queues that pods name otherwise

    @property
    def is_said(self) -> bool:
        """Say whether TrainJob or runtime name the queue at all."""
        return self.choice.source not in _UNSAID

    @property
    def queues(self) -> tuple[Wanted, ...]:
        """Return every queue that pods could be in."""
        return Wanted(self.choice.queue, self.path if self.is_said else ""), *self.beside


def resolve(
    labels: Mapping[str, str],
    patches: Sequence[Patch],
    runtime: Runtime | None,
    namespace: Mapping[str, str],
    default: str,
) -> Resolved:
    """Return which queue it will be; of a runtime that is not known only the patches speak."""
    jobset = shape(runtime or Runtime(), patches)
    pods = queues_of_pods(patches) if runtime is None else _queues(jobset)
    asked = Asked(
        trainjob={QUEUE: labels[QUEUE]} if QUEUE in labels else {},
        runtime_queue=runtime.queue if runtime else "",
        jobset=jobset.metadata.labels,
        templates=tuple({QUEUE: queue} for queue in pods.values()),
        namespace=namespace,
    )
    choice = choose(asked, default)
    path = _path(choice, pods, patches)
    beside = tuple(Wanted(it, _path_of_pods(it, pods, patches)) for it in choice.others)
    return Resolved(runtime or Runtime(), jobset, asked, choice, path, beside)


def _queues(jobset: JobSet) -> dict[str, str]:
    """Return which queues pods name, by replicatedJob."""
    jobs = jobset.spec.replicated_jobs
    labels = {it.name: it.template.spec.template.metadata.labels for it in jobs}
    return {name: said[QUEUE] for name, said in labels.items() if QUEUE in said}


def _path(choice: Choice, pods: Mapping[str, str], patches: Sequence[Patch]) -> str:
    match choice.source:
        case Source.RUNTIME:
            return RUNTIME
        case Source.JOBSET:
            return label_of_jobset(patches) or RUNTIME
        case Source.POD_TEMPLATE:
            return _path_of_pods(choice.queue, pods, patches)
        case _:
            return LABEL


def _path_of_pods(queue: str, pods: Mapping[str, str], patches: Sequence[Patch]) -> str:
    first = next(name for name, said in pods.items() if said == queue)
    return label_of_pods(patches, first) or RUNTIME
