"""The Kubernetes objects that we read: names, quantities and typed parts of objects.

Pure: nothing here talks to the API server or decides anything. This module has the kinds; each is
loaded at its first use, so that a program does not load kinds that it does not need. The modules
`decode`, `names`, `quantity`, `resources` and `validate` have the rest.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trainer_kai.api.disruption import PodDisruptionBudget
    from trainer_kai.api.event import Event
    from trainer_kai.api.job import Job
    from trainer_kai.api.jobset import JobSet
    from trainer_kai.api.lease import Lease
    from trainer_kai.api.meta import Key, Meta, Object, OwnerReference, PartialObject
    from trainer_kai.api.namespace import Namespace
    from trainer_kai.api.node import Node
    from trainer_kai.api.pod import Pod
    from trainer_kai.api.podgroup import PodGroup
    from trainer_kai.api.priority import PriorityClass
    from trainer_kai.api.queue import Queue
    from trainer_kai.api.quota import ResourceQuota
    from trainer_kai.api.resource import Resource
    from trainer_kai.api.runtime import Runtime
    from trainer_kai.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
    from trainer_kai.api.topology import Topology
    from trainer_kai.api.trainjob import TrainJob

__all__ = [
    "Event",
    "Job",
    "JobSet",
    "Key",
    "Lease",
    "Meta",
    "Namespace",
    "Node",
    "Object",
    "OwnerReference",
    "PartialObject",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodGroup",
    "PriorityClass",
    "Queue",
    "Resource",
    "ResourceQuota",
    "Runtime",
    "StorageClass",
    "Topology",
    "TrainJob",
]

_ELSEWHERE: Final = {
    "Key": "meta",
    "Meta": "meta",
    "Object": "meta",
    "OwnerReference": "meta",
    "PartialObject": "meta",
    "PersistentVolume": "storage",
    "PersistentVolumeClaim": "storage",
    "PodDisruptionBudget": "disruption",
    "PriorityClass": "priority",
    "ResourceQuota": "quota",
    "StorageClass": "storage",
}


if not TYPE_CHECKING:  # a type checker knows the names above, and would accept any name here

    def __getattr__(name: str) -> Any:
        """Load the module of a kind: it has the name of the kind, or is in `_ELSEWHERE`."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = f"{__name__}.{_ELSEWHERE.get(name, name.lower())}"
        kind = getattr(__import__(module, fromlist=(name,)), name)
        globals()[name] = kind
        return kind
