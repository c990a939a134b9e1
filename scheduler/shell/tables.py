"""Which kinds the tables of a cluster hold: what is followed, and what a snapshot shows."""

from typing import Any

from scheduler.state.cluster import Cluster
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import (
    JOBSETS,
    NAMESPACES,
    NODES,
    PDBS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    QUEUES,
    QUOTAS,
    STORAGE_CLASSES,
    TOPOLOGIES,
)

__all__ = ["resource_tables"]


def resource_tables(cluster: Cluster) -> list[tuple[Resource[Any], dict[Any, Any]]]:
    """Return each kind with its objects by name, but for pods and their groups, and TrainJobs."""
    return [
        (NODES, cluster.nodes),
        (QUEUES, cluster.queues),
        (TOPOLOGIES, cluster.topologies),
        (PRIORITY_CLASSES, cluster.priority_classes),
        (QUOTAS, cluster.quotas),
        (NAMESPACES, cluster.namespaces),
        (PVS, cluster.volumes),
        (STORAGE_CLASSES, cluster.storage_classes),
        (PVCS, cluster.claims),
        (PDBS, cluster.budgets),
        (JOBSETS, cluster.jobsets),
    ]
