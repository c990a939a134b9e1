"""The total of all nodes beside what queues own and use: idle GPUs, quotas, and who borrows.

It is the total of docs/rules.md without what pods of other schedulers have there: pods are not
read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from scheduler.core.model.resources import UNBOUND, ResourceKind
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.gpu_requests import gpu_count
from trainer_kai.api.names import CPU, MEMORY
from trainer_kai.api.quantity import QuantityError, milli, whole
from trainer_kai.api.text import first_listed
from trainer_kai.cli.output.queue_tables import THOUSANDTHS, QueueAmounts


class ClusterTotal(NamedTuple):
    """By `ResourceKind`: 1/1000 CPU, bytes, 1/1000 GPU."""

    cpu: int
    memory: int
    gpu: int


def cluster_total(nodes: Iterable[Node]) -> ClusterTotal:
    """Return what the nodes have that take pods; amounts that cannot be read are none."""
    cpu = memory = gpu = 0
    for node in nodes:
        if node.spec.unschedulable:
            continue
        allocatable = node.status.allocatable
        try:
            cpu += milli(allocatable.get(CPU, 0))
            memory += whole(allocatable.get(MEMORY, 0))
        except QuantityError:
            continue
        gpu += gpu_count(allocatable)
    return ClusterTotal(cpu, memory, gpu)


def total_lines(queues: Sequence[QueueAmounts], total: ClusterTotal) -> Iterator[str]:
    """Yield what is used and idle of all GPUs, and which queues borrow whose quota."""
    tops = [it for it in queues if not it.parent and not it.fault]
    used = sum(it.allocated[ResourceKind.GPU] for it in tops)
    idle = max(total.gpu - used, 0)
    quotas = sum(max(it.quota[ResourceKind.GPU], 0) for it in tops)
    yield (
        f"GPUs of nodes that take pods: {_gpus(total.gpu)}, used {_gpus(used)}, idle "
        f"{_gpus(idle)}; quotas of the top queues: {_gpus(quotas)}"
    )
    leaves = [*_leaves(queues)]
    over = [(_over_quota(it), it.name) for it in leaves if _over_quota(it) > 0]
    unused = [(-_over_quota(it), it.name) for it in leaves if _over_quota(it) < 0]
    if over:
        borrowers = first_listed(f"{name} ({_gpus(it)})" for it, name in sorted(over)[::-1])
        lenders = first_listed(f"{name} ({_gpus(it)})" for it, name in sorted(unused)[::-1])
        of = f"; quotas that are not used: {lenders}" if lenders else ""
        yield f"GPUs over quota, which can be reclaimed: {borrowers}{of}"


def quota_notes(queues: Iterable[QueueAmounts], total: ClusterTotal) -> Iterator[str]:
    """Yield the queues with a GPU quota that all nodes together do not have."""
    for it in queues:
        quota = it.quota[ResourceKind.GPU]
        if quota > total.gpu and not it.fault:
            yield (
                f"queue {it.name} has a quota of {_gpus(quota)} GPU, more than all nodes have "
                f"({_gpus(total.gpu)} GPU): `trainer-kai queue set {it.name} --gpu-quota N`"
            )


def _leaves(queues: Sequence[QueueAmounts]) -> Iterator[QueueAmounts]:
    parents = {it.parent for it in queues}
    return (it for it in queues if it.name not in parents and not it.fault)


def _over_quota(queue: QueueAmounts) -> int:
    """Return what a queue has over its quota; below zero, what it does not use of it."""
    quota = queue.quota[ResourceKind.GPU]
    return 0 if quota == UNBOUND else queue.allocated[ResourceKind.GPU] - quota


def _gpus(thousandths: int) -> str:
    return f"{thousandths / THOUSANDTHS:g}"
