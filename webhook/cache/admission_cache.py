"""The objects that admission has cached, kept up to date by watches: no review waits for them.

Each object is reduced to the fields that a rule reads. All objects together fit into a process of
512 MiB; an object that does not fit is left out, counts as unknown, and is read from the API server
when a review needs it. The cache may be behind the cluster. A rule that must know the current state
compares the uid, or reads the object.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.cluster_kinds import Node, PriorityClass
from trainer_kai.api.device_kinds import (
    DeviceClass,
    RequestedClass,
    ResourceClaimTemplate,
    requested_classes,
)
from trainer_kai.api.kai_kinds import Queue, QueueSpec, Topology, TopologySpec
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import QUEUE, TRAINER
from trainer_kai.api.quantity import Quantity
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    NODES,
    PRIORITY_CLASSES,
    QUEUES,
    TOPOLOGIES,
    Resource,
)
from trainer_kai.api.text import first_listed
from trainer_kai.api.trainjob import RuntimeRef, TrainJobStatus
from trainer_kai.policy.expand.jobset import (
    CARRIED_ANNOTATIONS,
    CARRIED_LABELS,
    CARRIED_TO_PODS,
)
from trainer_kai.policy.lint.node_index import KnownCluster, NodeIndex
from trainer_kai.policy.misspelled_keys import similar_name
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    effective_queue_access,
)
from trainer_kai.policy.queueing.topology_default import own_topology_default
from webhook.cache.runtimes import (
    OBJECT_BYTES,
    BoundedStore,
    RuntimeCache,
    runtime_key,
    selected,
    text_bytes,
)

_FINISHED: Final = ("Complete", "Failed")
_MAX_TRAINJOBS_BYTES: Final = 48 << 20  # room for 30,000 and more
_MAX_TRAINJOB_BYTES: Final = 16 << 10  # one TrainJob: names and durations
_MAX_NAMED_CHILDREN: Final = 3
_MAX_TEMPLATES_BYTES: Final = 8 << 20  # room for thousands
_MAX_TEMPLATE_BYTES: Final = 16 << 10  # one template: the names of its requests and classes
_REQUEST_BYTES: Final = 200


class SlimTrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    runtime_ref: RuntimeRef = RuntimeRef()


class SlimTrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: SlimTrainJobSpec = SlimTrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()


TRAINJOBS: Final = Resource(
    TRAINER, "v1alpha1", "trainjobs", "TrainJob", namespaced=True, struct=SlimTrainJob
)


class TrainJobSummary(NamedTuple):
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: Key  # without a namespace for a ClusterTrainingRuntime
    is_finished: bool = False


def summarize_trainjob(trainjob: SlimTrainJob) -> TrainJobSummary:
    meta = trainjob.metadata
    return TrainJobSummary(
        uid=meta.uid,
        labels=selected(meta.labels, (QUEUE, *CARRIED_LABELS)),
        annotations=selected(meta.annotations, (*CARRIED_ANNOTATIONS, *CARRIED_TO_PODS)),
        runtime=runtime_key(trainjob.spec.runtime_ref, meta.namespace),
        is_finished=any(
            it.type in _FINISHED and it.status == "True" for it in trainjob.status.conditions
        ),
    )


def trainjob_bytes(job: TrainJobSummary) -> int:
    texts = (*job.labels.values(), *job.annotations.values(), *job.runtime, job.uid)
    return OBJECT_BYTES + text_bytes(texts)


class QueueTree:
    """Which queues are closed, and which have children and so hold no workloads.

    Until all queues are listed, no queue counts as missing.
    """

    def __init__(self) -> None:
        self._is_listed = False
        self._parents: dict[str, str] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._access: dict[str, str] = {}  # annotations, by queue
        self._annotated_closed: set[str] = set()  # queues with an annotation other than open

    def put(self, name: str, parent: str, access: str | None = None) -> None:
        self.drop(name)
        self._parents[name] = parent
        if access is not None:
            self._access[name] = access
            if access != QueueAccessMode.OPEN:
                self._annotated_closed.add(name)
        if parent:
            self._children.setdefault(parent, {})[name] = None

    def drop(self, name: str) -> None:
        """Forget a queue; its children keep their parent."""
        parent = self._parents.pop(name, "")
        self._access.pop(name, None)
        self._annotated_closed.discard(name)
        siblings = self._children.get(parent, {})
        siblings.pop(name, None)
        if not siblings:
            self._children.pop(parent, None)

    def mark_listed(self) -> None:
        self._is_listed = True

    def access(self, name: str) -> EffectiveQueueAccess:
        """Return the access annotation of the queue, or of the nearest parent that has one."""
        return effective_queue_access(name, lambda it: self._parents.get(it, ""), self._access.get)

    @property
    def has_closed_queue(self) -> bool:
        return bool(self._annotated_closed)

    def is_unknown(self, name: str) -> bool:
        return self._is_listed and name not in self._parents

    def unusable_reason(self, name: str) -> str | None:
        """Say why a queue cannot hold workloads, and what to do; to follow the queue's name."""
        if not self._is_listed:
            return None
        if name not in self._parents:
            meant = similar_name(name, (it for it in self._parents if it not in self._children))
            hint = f"Did you mean {meant!r}? Otherwise create" if meant else "Create"
            return f"does not exist. {hint} the queue, or name an existing one"
        children = sorted(self._children.get(name, ()))
        if not children:
            return None
        few = first_listed(children, _MAX_NAMED_CHILDREN)
        return f"has child queues and cannot hold workloads. Name one of the children: {few}"


class ClusterObjects:
    """The objects that lint compares a TrainJob with, as last watched.

    Until all objects of a kind are listed, the kind counts as unknown.
    """

    def __init__(self) -> None:
        self._nodes: Final = NodeIndex()
        self._queues: Final[dict[str, QueueSpec]] = {}
        self._non_preemptible: Final[dict[str, Mapping[str, Quantity]]] = {}
        self._priority_classes: Final[dict[str, PriorityClass]] = {}
        self._topologies: Final[dict[str, TopologySpec]] = {}
        self._topology_defaults: Final[dict[str, Mapping[str, str]]] = {}
        self._device_classes: Final[dict[str, None]] = {}
        self.claim_templates: Final = BoundedStore[tuple[RequestedClass, ...]](
            _MAX_TEMPLATES_BYTES, _MAX_TEMPLATE_BYTES
        )
        self._listed: Final[set[str]] = set()

    def put_node(self, node: Node) -> None:
        self._nodes.put(node)

    def drop_node(self, key: Key) -> None:
        self._nodes.drop(key.name)

    def put_queue(self, queue: Queue) -> None:
        name = queue.metadata.name
        self._queues[name] = queue.spec
        self._topology_defaults[name] = own_topology_default(queue.metadata.annotations)
        self._non_preemptible[name] = queue.status.allocated_non_preemptible

    def drop_queue(self, key: Key) -> None:
        self._queues.pop(key.name, None)
        self._topology_defaults.pop(key.name, None)
        self._non_preemptible.pop(key.name, None)

    def put_priority_class(self, priority_class: PriorityClass) -> None:
        self._priority_classes[priority_class.metadata.name] = PriorityClass(
            metadata=Meta(name=priority_class.metadata.name),
            value=priority_class.value,
            global_default=priority_class.global_default,
        )

    def drop_priority_class(self, key: Key) -> None:
        self._priority_classes.pop(key.name, None)

    def put_topology(self, topology: Topology) -> None:
        self._topologies[topology.metadata.name] = topology.spec

    def drop_topology(self, key: Key) -> None:
        self._topologies.pop(key.name, None)

    def put_device_class(self, device_class: DeviceClass) -> None:
        self._device_classes[device_class.metadata.name] = None

    def drop_device_class(self, key: Key) -> None:
        self._device_classes.pop(key.name, None)

    def put_claim_template(self, template: ResourceClaimTemplate) -> None:
        requested = requested_classes(template.spec.spec)
        texts = (*template.metadata.key, *(text for it in requested for text in it))
        size = OBJECT_BYTES + _REQUEST_BYTES * len(requested) + text_bytes(texts)
        self.claim_templates.put(template.metadata.key, requested, size)

    def drop_claim_template(self, key: Key) -> None:
        self.claim_templates.drop(key)

    def _claim_template(self, key: Key) -> tuple[RequestedClass, ...] | None:
        return () if self.claim_templates.is_left_out(key) else self.claim_templates.get(key)

    @property
    def non_preemptible_usage(self) -> Mapping[str, Mapping[str, Quantity]]:
        """Return what each queue has in non-preemptible PodGroups, as its status says."""
        return self._non_preemptible

    def mark_listed(self, plural: str) -> None:
        self._listed.add(plural)

    def known_cluster(self, *, autoscales: bool, shares_gpus: bool = True) -> KnownCluster:
        """Return the kinds that were listed completely; None stands for a kind that was not."""
        listed = self._listed
        return KnownCluster(
            nodes=self._nodes if NODES.plural in listed else None,
            queues=self._queues if QUEUES.plural in listed else None,
            priorities=self._priority_classes if PRIORITY_CLASSES.plural in listed else None,
            topologies=self._topologies if TOPOLOGIES.plural in listed else None,
            autoscales=autoscales,
            shares_gpus=shares_gpus,
            topology_defaults=self._topology_defaults,
            device_classes=(
                self._device_classes.keys() if DEVICE_CLASSES.plural in listed else None
            ),
            claim_template=self._claim_template if CLAIM_TEMPLATES.plural in listed else None,
        )


class AdmissionCache:
    def __init__(self) -> None:
        self.queues = QueueTree()
        self.cluster = ClusterObjects()
        self.runtimes = RuntimeCache()
        self._trainjobs: Final = BoundedStore[TrainJobSummary](
            _MAX_TRAINJOBS_BYTES, _MAX_TRAINJOB_BYTES
        )
        self._namespaces: dict[str, str] = {}

    def put_trainjob(self, trainjob: SlimTrainJob) -> None:
        summary = summarize_trainjob(trainjob)
        self._trainjobs.put(trainjob.metadata.key, summary, trainjob_bytes(summary))

    def drop_trainjob(self, key: Key) -> None:
        self._trainjobs.drop(key)

    def put_namespace(self, meta: Meta) -> None:
        if meta.labels.get(QUEUE):
            self._namespaces[meta.name] = meta.labels[QUEUE]
        else:
            self.drop_namespace(meta.name)

    def drop_namespace(self, name: str) -> None:
        self._namespaces.pop(name, None)

    def trainjob(self, key: Key) -> TrainJobSummary | None:
        """Return the summary of a TrainJob; None if the TrainJob is unknown or left out."""
        return self._trainjobs.get(key)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace that a rule reads."""
        queue = self._namespaces.get(name)
        return {QUEUE: queue} if queue else {}

    def namespaces_with_queue(self, queue: str) -> Sequence[str]:
        return sorted(name for name, it in self._namespaces.items() if it == queue)

    @property
    def stores(self) -> Mapping[str, BoundedStore[Any]]:
        templates = {CLAIM_TEMPLATES.plural: self.cluster.claim_templates}
        return {"trainjobs": self._trainjobs, **templates, **self.runtimes.stores}
