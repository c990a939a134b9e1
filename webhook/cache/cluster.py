"""The objects that lint compares a TrainJob with: nodes, queues, PriorityClasses, Topologies.

Until all objects of a kind are listed, the kind counts as unknown.
"""

from collections.abc import Mapping
from typing import Final

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.node import Node
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.quantity import Quantity
from trainer_kai.api.queue import Queue, QueueSpec
from trainer_kai.api.resources import NODES, PRIORITY_CLASSES, QUEUES, TOPOLOGIES
from trainer_kai.api.topology import Topology, TopologySpec
from trainer_kai.policy.lint.known_cluster import KnownCluster
from trainer_kai.policy.lint.node_index import NodeIndex


class ClusterObjects:
    """The objects that lint compares with, as last watched."""

    def __init__(self) -> None:
        self._nodes: Final = NodeIndex()
        self._queues: Final[dict[str, QueueSpec]] = {}
        self._non_preemptible: Final[dict[str, Mapping[str, Quantity]]] = {}
        self._priority_classes: Final[dict[str, PriorityClass]] = {}
        self._topologies: Final[dict[str, TopologySpec]] = {}
        self._listed: Final[set[str]] = set()

    def put_node(self, node: Node) -> None:
        """Put a node as it is now."""
        self._nodes.put(node)

    def drop_node(self, key: Key) -> None:
        """Forget a node."""
        self._nodes.drop(key.name)

    def put_queue(self, queue: Queue) -> None:
        """Put a queue as it is now."""
        name = queue.metadata.name
        self._queues[name] = queue.spec
        self._non_preemptible[name] = queue.status.allocated_non_preemptible

    def drop_queue(self, key: Key) -> None:
        """Forget a queue."""
        self._queues.pop(key.name, None)
        self._non_preemptible.pop(key.name, None)

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
        """Put a topology as it is now."""
        self._topologies[topology.metadata.name] = topology.spec

    def drop_topology(self, key: Key) -> None:
        """Forget a topology."""
        self._topologies.pop(key.name, None)

    @property
    def non_preemptible_usage(self) -> Mapping[str, Mapping[str, Quantity]]:
        """Return what each queue has in non-preemptible PodGroups, as its status says."""
        return self._non_preemptible

    def mark_listed(self, plural: str) -> None:
        """Note that all objects of a kind were listed."""
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
        )
