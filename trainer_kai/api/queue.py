"""Queue: the quota of a team, its weight for resources over quota, and its limit."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.quantity import Quantity


class QueueResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The share of one resource: GPUs, millicores, or megabytes of 10^6; -1 means unlimited.

    A missing number is 0: a queue may use nothing of a resource that it does not mention.
    """

    quota: Decimal = Decimal(0)
    over_quota_weight: Decimal = Decimal(0)
    limit: Decimal = Decimal(0)


# What counts for a resource that a queue does not mention. It equals a resource whose numbers are
# all written as 0; only `is` tells the two apart.
ABSENT_RESOURCE: Final = QueueResource()


class QueueResources(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The shares of a queue by resource."""

    gpu: QueueResource = ABSENT_RESOURCE
    cpu: QueueResource = ABSENT_RESOURCE
    memory: QueueResource = ABSENT_RESOURCE


class QueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The parent of the queue, and its shares."""

    parent_queue: str = ""
    priority: int | None = None
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""
    resources: QueueResources | None = None


class QueueStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What the PodGroups of a queue use and request: cores, bytes and devices, unlike the spec."""

    child_queues: tuple[str, ...] = ()
    allocated: Mapping[str, Quantity] = {}
    allocated_non_preemptible: Mapping[str, Quantity] = {}
    requested: Mapping[str, Quantity] = {}


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A queue."""

    metadata: Meta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
