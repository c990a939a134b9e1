"""Which queue a workload goes to, and which object named it.

The highest wins: the TrainJob's label, the runtime's own field, the JobSet's label (which is that
of the runtime's template), a pod template's, the namespace's, the default. A Job or JobSet that a
user creates has its own label in place of the first three. What admission itself filled in earlier
is none of these; callers leave it out.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from trainer_kai.api.names import NODE_POOL, PROJECT, QUEUE


class QueueSource(Enum):
    """The highest first."""

    OWN = "its own label"
    TRAINJOB = "the TrainJob's label"
    RUNTIME = "the runtime's podGroupPolicy.kaiScheduler.queue"
    JOBSET = "the label of the runtime's template"
    POD_TEMPLATE = "the label of a pod template"
    NAMESPACE = "the namespace's label"
    DEFAULT = "the setting default_queue"


class RequestedQueues(NamedTuple):
    """The labels of each object that may name a queue; templates as they are listed."""

    trainjob: Mapping[str, str] = {}
    runtime_queue: str = ""
    jobset: Mapping[str, str] = {}
    templates: tuple[Mapping[str, str], ...] = ()
    namespace: Mapping[str, str] = {}
    own: Mapping[str, str] = {}  # of a Job or JobSet that a user creates


class QueueChoice(NamedTuple):
    queue: str
    source: QueueSource
    others: tuple[str, ...] = ()  # queues that pod templates name beside it, in order


def resolve_queue(requested: RequestedQueues, default: str) -> QueueChoice:
    """Return the queue that is named highest; an empty label names none."""
    templates = [labels[QUEUE] for labels in requested.templates if labels.get(QUEUE)]
    named = {
        QueueSource.OWN: requested.own.get(QUEUE),
        QueueSource.TRAINJOB: requested.trainjob.get(QUEUE),
        QueueSource.RUNTIME: requested.runtime_queue,
        QueueSource.JOBSET: requested.jobset.get(QUEUE),
        QueueSource.POD_TEMPLATE: templates[0] if templates else None,
        QueueSource.NAMESPACE: requested.namespace.get(QUEUE),
    }
    for source, queue in named.items():
        if queue:
            others = tuple(dict.fromkeys(name for name in templates if name != queue))
            return QueueChoice(queue, source, others)
    return QueueChoice(default, QueueSource.DEFAULT)


def queue_of_owner(owner: Mapping[str, str], pod: Mapping[str, str]) -> str:
    """Return the queue that the labels of an owner or a pod name, as KAI reads them, or "".

    `project` is KAI's older label: with the node pool of the pod it names one queue for each pool.
    """
    queue, project = (owner.get(name) or pod.get(name) or "" for name in (QUEUE, PROJECT))
    pool = pod.get(NODE_POOL)
    return queue or (f"{project}-{pool}" if project and pool else project)
