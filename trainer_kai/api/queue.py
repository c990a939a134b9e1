"""Queue: the quota of a team, its share over quota, and its limit."""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.quantity import Quantity

__all__ = ["Queue", "QueueResource", "QueueResources", "QueueSpec", "QueueStatus"]


class QueueResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Share of one resource: GPUs, millicores, or megabytes of 10^6; -1 means no bound.

    What is left out is 0: of a resource that is not mentioned a queue may use nothing at all.
    """

    quota: Decimal = Decimal(0)
    over_quota_weight: Decimal = Decimal(0)
    limit: Decimal = Decimal(0)


class QueueResources(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The shares of a queue."""

    gpu: QueueResource = QueueResource()
    cpu: QueueResource = QueueResource()
    memory: QueueResource = QueueResource()


class QueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The parent of the queue, and what it gets."""

    parent_queue: str = ""
    priority: int | None = None
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""
    resources: QueueResources | None = None


class QueueStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What its PodGroups hold and ask for: cores, bytes and devices, unlike the spec."""

    child_queues: tuple[str, ...] = ()
    allocated: Mapping[str, Quantity] = {}
    allocated_non_preemptible: Mapping[str, Quantity] = {}
    requested: Mapping[str, Quantity] = {}


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A queue."""

    metadata: Meta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
