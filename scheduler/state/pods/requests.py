"""What the pods of a class request, of nodes and of their queue, in thousandths."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import Ints, ResourceKind
from scheduler.state.nodes.node_table import ResourceEncoder, UnknownResources
from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import GpuSharing, PodClass, SharedSpec, read_gpu_sharing
from trainer_kai.policy.pods.requests import ResourceAmounts

__all__ = [
    "PodRequests",
]


class _ClassRequest(NamedTuple):
    """Of one kin: in columns, as queues count it, and what no node has of it."""

    request: list[int]
    queue_request: list[int]
    unknown_resources: UnknownResources


class PodRequests:
    """By number of kin."""

    def __init__(
        self, columns: ResourceEncoder, gpus: Sequence[str], least_memory_mib: int
    ) -> None:
        self.columns: Final = columns
        self._gpus: Final = gpus
        self.unknown_resources: Final[dict[int, UnknownResources]] = {}
        self.sharing: Final[dict[int, GpuSharing]] = {}
        self._least_memory_mib: Final = least_memory_mib
        width = len(columns.names)
        self.request: Ints = np.zeros((0, width), dtype=np.int64)
        self.queue_request: Ints = np.zeros((0, len(ResourceKind)), dtype=np.int64)

    def has_gpu(self, pod_class: int) -> bool:
        """Say whether one needs a device, or a part of one."""
        return bool(self.queue_request[pod_class, ResourceKind.GPU]) or pod_class in self.sharing

    def read(self, numbers: list[int], class_table: PodClassTable) -> None:
        """Read what kin ask for that were not known so far."""
        size = len(class_table.serial)
        if size > len(self.request):
            self.request = _extended(self.request, size)
            self.queue_request = _extended(self.queue_request, size)
        known: dict[tuple[SharedSpec, bool], _ClassRequest] = {}
        class_requests = [self._class_request(class_table[number], known) for number in numbers]
        width = len(self.columns.names)
        self.request[numbers] = np.array([it.request for it in class_requests]).reshape(
            len(class_requests), width
        )
        self.queue_request[numbers] = np.array([it.queue_request for it in class_requests]).reshape(
            len(class_requests), len(ResourceKind)
        )
        for number, class_request in zip(numbers, class_requests, strict=True):
            self.unknown_resources.pop(number, None)
            if class_request.unknown_resources:
                self.unknown_resources[number] = class_request.unknown_resources
            if number in self.sharing:
                sharing_or_charge = self.sharing[number].queue_request(self._least_memory_mib)
                self.queue_request[number, ResourceKind.GPU] += (
                    sharing_or_charge  # of 64 devices at most: no matter
                )

    def _class_request(
        self, pod_class: PodClass, known: dict[tuple[SharedSpec, bool], _ClassRequest]
    ) -> _ClassRequest:
        sharing_or_charge = read_gpu_sharing(pod_class, self._gpus)
        if sharing_or_charge is None:
            self.sharing.pop(pod_class.number, None)
        else:
            self.sharing[pod_class.number] = sharing_or_charge
        has_whole = sharing_or_charge is None and not pod_class.is_gpu_reservation
        class_request = known.get((pod_class.shared_spec, has_whole))
        if class_request is None:
            class_request = known[pod_class.shared_spec, has_whole] = self._read_request(
                pod_class.shared_spec.demand(), has_whole=has_whole
            )
        return class_request

    def _read_request(self, amounts: ResourceAmounts, *, has_whole: bool) -> _ClassRequest:
        """Leave devices out: who shares one has a part of it, who keeps it for them none."""
        if not has_whole:
            amounts = {name: it for name, it in amounts.items() if name not in self.columns.gpus}
        columns = self.columns
        return _ClassRequest(
            columns.request(amounts),
            columns.queue_request(amounts),
            columns.unknown_resources(amounts),
        )


def _extended(table: Ints, size: int) -> Ints:
    longer = np.zeros((size, table.shape[1]), dtype=np.int64)
    longer[: len(table)] = table
    return longer
