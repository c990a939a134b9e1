"""What lint compares with: nodes, queues, priority classes, topologies, and runtimes as text.

A runtime is kept as text and decoded when a TrainJob names it, so that a large one costs others
neither time nor memory; one that does not fit is left out, and lint skips its TrainJobs. A kind
that was not listed completely counts as unknown.
"""

from typing import Final

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import TRAINER
from trainer_kai.api.node import Node
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.queue import Queue, QueueSpec
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import NODES, PRIORITY_CLASSES, QUEUES, TOPOLOGIES
from trainer_kai.api.runtime import Runtime, RuntimeSpec
from trainer_kai.api.topology import Topology, TopologySpec
from trainer_kai.policy.lint import KnownCluster, NodeIndex
from webhook.cache.bounded_store import BoundedStore

__all__ = [
    "CLUSTER_RUNTIME_TEXTS",
    "MAX_TEXT_BYTES",
    "RUNTIME_TEXTS",
    "ClusterObjects",
    "RuntimeText",
]

MAX_TEXT_BYTES: Final = 256 * 1024  # of a runtime or a TrainJob that lint looks at
_MAX_TEXTS_BYTES: Final = 64 << 20  # thousands like those that Trainer ships, of 5 to 20 KB
_ENTRY_BYTES: Final = 500


class RuntimeText(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime whose spec is not decoded yet."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")


RUNTIME_TEXTS: Final = Resource(
    TRAINER, "v1alpha1", "trainingruntimes", "TrainingRuntime", namespaced=True, struct=RuntimeText
)
CLUSTER_RUNTIME_TEXTS: Final = Resource(
    TRAINER,
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
    struct=RuntimeText,
)


class ClusterObjects:
    """The objects that lint compares with, as last watched."""

    def __init__(self) -> None:
        self._nodes: Final = NodeIndex()
        self._queues: Final[dict[str, QueueSpec]] = {}
        self._priority_classes: Final[dict[str, PriorityClass]] = {}
        self._topologies: Final[dict[str, TopologySpec]] = {}
        self.runtime_texts: Final = BoundedStore[bytes](
            _MAX_TEXTS_BYTES, MAX_TEXT_BYTES + _ENTRY_BYTES
        )
        """The specs of runtimes."""
        self._listed: Final[set[str]] = set()

    def put_node(self, node: Node) -> None:
        """Put a node as it is now."""
        self._nodes.put(node)

    def drop_node(self, key: Key) -> None:
        """Forget a node."""
        self._nodes.drop(key.name)

    def put_queue(self, queue: Queue) -> None:
        """Put a queue as it is now."""
        self._queues[queue.metadata.name] = queue.spec

    def drop_queue(self, key: Key) -> None:
        """Forget a queue."""
        self._queues.pop(key.name, None)

    def put_priority_class(self, priority_class: PriorityClass) -> None:
        """Put a priority class as it is now."""
        self._priority_classes[priority_class.metadata.name] = PriorityClass(
            metadata=Meta(name=priority_class.metadata.name),
            value=priority_class.value,
            global_default=priority_class.global_default,
        )

    def drop_priority_class(self, key: Key) -> None:
        """Forget a priority class."""
        self._priority_classes.pop(key.name, None)

    def put_topology(self, topology: Topology) -> None:
        """Take a topology as it is now."""
        self._topologies[topology.metadata.name] = topology.spec

    def drop_topology(self, key: Key) -> None:
        """Forget a topology."""
        self._topologies.pop(key.name, None)

    def put_runtime(self, runtime: RuntimeText) -> None:
        """Take the text of a runtime as it is now."""
        text = bytes(runtime.spec)
        self.runtime_texts.put(runtime.metadata.key, text, len(text) + _ENTRY_BYTES)

    def drop_runtime(self, key: Key) -> None:
        """Forget a runtime."""
        self.runtime_texts.drop(key)

    def mark_listed(self, plural: str) -> None:
        """Note that all objects of a kind are known."""
        self._listed.add(plural)

    def runtime(self, key: Key) -> Runtime | None:
        """Return a runtime, unless it is not known or cannot be read."""
        text = self.runtime_texts.get(key)
        if text is None:
            return None
        try:
            spec = decode(RuntimeSpec, text)
        except DecodeError:
            return None
        return Runtime(metadata=Meta(namespace=key.namespace, name=key.name), spec=spec)

    def known_cluster(self, *, autoscales: bool) -> KnownCluster:
        """Return the kinds that were listed completely; None stands for a kind that was not."""
        listed = self._listed
        return KnownCluster(
            nodes=self._nodes if NODES.plural in listed else None,
            queues=self._queues if QUEUES.plural in listed else None,
            priorities=self._priority_classes if PRIORITY_CLASSES.plural in listed else None,
            topologies=self._topologies if TOPOLOGIES.plural in listed else None,
            autoscales=autoscales,
        )
