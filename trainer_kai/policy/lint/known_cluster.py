"""The objects that a TrainJob is compared with: nodes, queues, PriorityClasses, Topologies.

A kind that was not listed yet is None, and nothing is reported about it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from trainer_kai.api.names import AMD_GPU, GPU
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.queue import QueueSpec
from trainer_kai.api.topology import TopologySpec
from trainer_kai.policy.lint.node_index import NodeIndex


class KnownCluster(NamedTuple):
    """The objects of each kind, by name."""

    nodes: NodeIndex | None = None
    queues: Mapping[str, QueueSpec] | None = None
    priorities: Mapping[str, PriorityClass] | None = None
    topologies: Mapping[str, TopologySpec] | None = None
    autoscales: bool = False  # the cluster adds nodes when capacity is missing
    gpus: tuple[str, ...] = (GPU, AMD_GPU)  # the resources that queues count as GPUs
    shares_gpus: bool = True  # our scheduler binds pods with shares of GPUs


NOTHING_KNOWN = KnownCluster()
