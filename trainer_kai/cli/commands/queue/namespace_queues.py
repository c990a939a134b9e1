"""Which namespaces use which queues now. Pure.

A TrainJob uses the queue of its label, and the queue that admission wrote on its JobSet. Without
both, as before admission, it uses the queue of its namespace or the default queue; runtimes are not
read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api import resources
from trainer_kai.api.meta import Key, Meta, PartialObject
from trainer_kai.api.names import POD_GROUP, QUEUE
from trainer_kai.policy.queueing.queue_resolution import RequestedQueues, resolve_queue


class SiteSettings(NamedTuple):
    scheduler_name: str
    default_queue: str


class _PartialPodGroupSpec(msgspec.Struct, frozen=True, gc=False):
    queue: str = ""


class PartialPodGroup(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    spec: _PartialPodGroupSpec = _PartialPodGroupSpec()


PODGROUPS: Final = resources.PODGROUPS.with_struct(PartialPodGroup)
# Only their metadata are needed.
NAMESPACES, TRAINJOBS, JOBSETS, PODS = (
    it.with_struct(PartialObject)
    for it in (resources.NAMESPACES, resources.TRAINJOBS, resources.JOBSETS, resources.PODS)
)


class QueueWorkloads(NamedTuple):
    """The workloads of all namespaces; only pods of our scheduler."""

    namespaces: Sequence[PartialObject]
    trainjobs: Sequence[PartialObject]
    jobsets: Sequence[PartialObject]
    pods: Sequence[PartialObject]
    podgroups: Sequence[PartialPodGroup]


class NamespaceQueue(NamedTuple):
    namespace: str
    queue: str


def namespace_queues(workloads: QueueWorkloads, default_queue: str) -> list[NamespaceQueue]:
    """Return each pair once, without namespaces that are being deleted."""
    labels = {
        it.metadata.name: it.metadata.labels
        for it in workloads.namespaces
        if not it.metadata.deletion_timestamp
    }
    uses = {*_by_podgroups(workloads), *_by_trainjobs(workloads, labels, default_queue)}
    uses.update(_by_pods(workloads, default_queue))
    return sorted(use for use in uses if use.namespace in labels)


def _by_podgroups(workloads: QueueWorkloads) -> Iterator[NamespaceQueue]:
    for group in workloads.podgroups:
        yield NamespaceQueue(group.metadata.namespace, group.spec.queue)


def _by_trainjobs(
    workloads: QueueWorkloads, namespaces: Mapping[str, Mapping[str, str]], default_queue: str
) -> Iterator[NamespaceQueue]:
    jobsets = {it.metadata.key: it.metadata.labels.get(QUEUE) for it in workloads.jobsets}
    yield from (NamespaceQueue(key.namespace, queue) for key, queue in jobsets.items() if queue)
    for job in workloads.trainjobs:
        meta = job.metadata
        if not jobsets.get(meta.key) or meta.labels.get(QUEUE):
            requested = RequestedQueues(meta.labels, namespace=namespaces.get(meta.namespace, {}))
            yield NamespaceQueue(meta.namespace, resolve_queue(requested, default_queue).queue)


def _by_pods(workloads: QueueWorkloads, default_queue: str) -> Iterator[NamespaceQueue]:
    known = {it.metadata.key for it in workloads.podgroups}
    for pod in workloads.pods:
        meta = pod.metadata
        if Key(meta.namespace, meta.annotations.get(POD_GROUP, "")) not in known:
            yield NamespaceQueue(meta.namespace, meta.labels.get(QUEUE) or default_queue)
