"""Which namespaces use which queues now. Pure.

A TrainJob uses the queue that its label names, and the one that admission wrote on its JobSet. With
neither, as before admission has seen it, it uses that of its namespace or the default one: runtimes
are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api import resources
from trainer_kai.api.meta import Key, Meta, PartialObject
from trainer_kai.api.names import POD_GROUP, QUEUE
from trainer_kai.api.resource import Resource
from trainer_kai.policy.queues import Asked, choose

__all__ = [
    "GROUPS",
    "JOBSETS",
    "NAMESPACES",
    "PODS",
    "TRAINJOBS",
    "Group",
    "Site",
    "Use",
    "Work",
    "uses",
]


class Site(NamedTuple):
    """What the site tells its processes."""

    scheduler_name: str
    default_queue: str


class _GroupSpec(msgspec.Struct, frozen=True, gc=False):
    queue: str = ""


class Group(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup, as far as it says where it is."""

    metadata: Meta
    spec: _GroupSpec = _GroupSpec()


_OF_KAI: Final = resources.PODGROUPS
GROUPS: Final = Resource(
    _OF_KAI.group, _OF_KAI.version, _OF_KAI.plural, _OF_KAI.kind, _OF_KAI.namespaced, Group
)
# Of these the metadata are enough.
NAMESPACES, TRAINJOBS, JOBSETS, PODS = (
    Resource(it.group, it.version, it.plural, it.kind, it.namespaced, PartialObject)
    for it in (resources.NAMESPACES, resources.TRAINJOBS, resources.JOBSETS, resources.PODS)
)


class Work(NamedTuple):
    """What there is, in all namespaces; of pods the ones of our scheduler."""

    namespaces: Sequence[PartialObject]
    trainjobs: Sequence[PartialObject]
    jobsets: Sequence[PartialObject]
    pods: Sequence[PartialObject]
    groups: Sequence[Group]


class Use(NamedTuple):
    """A namespace that uses a queue."""

    namespace: str
    queue: str


def uses(work: Work, default_queue: str) -> list[Use]:
    """Return each use once; a namespace that is being deleted has none."""
    labels = {
        it.metadata.name: it.metadata.labels
        for it in work.namespaces
        if not it.metadata.deletion_timestamp
    }
    found = {*_by_groups(work), *_by_trainjobs(work, labels, default_queue)}
    found.update(_by_pods(work, default_queue))
    return sorted(use for use in found if use.namespace in labels)


def _by_groups(work: Work) -> Iterator[Use]:
    for group in work.groups:
        yield Use(group.metadata.namespace, group.spec.queue)


def _by_trainjobs(
    work: Work, namespaces: Mapping[str, Mapping[str, str]], default_queue: str
) -> Iterator[Use]:
    jobsets = {it.metadata.key: it.metadata.labels.get(QUEUE) for it in work.jobsets}
    yield from (Use(key.namespace, queue) for key, queue in jobsets.items() if queue)
    for job in work.trainjobs:
        meta = job.metadata
        if not jobsets.get(meta.key) or meta.labels.get(QUEUE):
            asked = Asked(meta.labels, namespace=namespaces.get(meta.namespace, {}))
            yield Use(meta.namespace, choose(asked, default_queue).queue)


def _by_pods(work: Work, default_queue: str) -> Iterator[Use]:
    known = {it.metadata.key for it in work.groups}
    for pod in work.pods:
        meta = pod.metadata
        if Key(meta.namespace, meta.annotations.get(POD_GROUP, "")) not in known:
            yield Use(meta.namespace, meta.labels.get(QUEUE) or default_queue)
