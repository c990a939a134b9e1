"""The requests of pod classes, of nodes and of their queue."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import Ints, ResourceKind
from scheduler.state.nodes.node_table import ResourceEncoder, UnknownResources
from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import GpuSharing, PodClass, SharedSpec, read_gpu_sharing
from trainer_kai.policy.pods.requests import ResourceAmounts

__all__ = ["PodRequests"]


class _ClassRequest(NamedTuple):
    """The request of one class: as a row, as queues count it, and resources that no node has."""

    request: list[int]
    queue_request: list[int]
    unknown_resources: UnknownResources


class PodRequests:
    """The requests by number of the class."""

    def __init__(
        self, encoder: ResourceEncoder, gpus: Sequence[str], least_memory_mib: int
    ) -> None:
        self.encoder: Final = encoder
        self._gpus: Final = gpus
        self.unknown_resources: Final[dict[int, UnknownResources]] = {}
        self.sharing: Final[dict[int, GpuSharing]] = {}
        self._least_memory_mib: Final = least_memory_mib
        width = len(encoder.names)
        self.request: Ints = np.zeros((0, width), dtype=np.int64)
        self.queue_request: Ints = np.zeros((0, len(ResourceKind)), dtype=np.int64)

    def has_gpu(self, pod_class: int) -> bool:
        """Say whether pods of a class request a GPU, or a part of one."""
        return bool(self.queue_request[pod_class, ResourceKind.GPU]) or pod_class in self.sharing

    def read(self, numbers: list[int], class_table: PodClassTable) -> None:
        """Read the requests of classes that were not known so far."""
        size = len(class_table.serial)
        if size > len(self.request):
            self.request = _extended(self.request, size)
            self.queue_request = _extended(self.queue_request, size)
        known: dict[tuple[SharedSpec, bool], _ClassRequest] = {}
        requests = [self._class_request(class_table[number], known) for number in numbers]
        width, count = len(self.encoder.names), len(requests)
        self.request[numbers] = np.array([it.request for it in requests]).reshape(count, width)
        self.queue_request[numbers] = np.array([it.queue_request for it in requests]).reshape(
            count, len(ResourceKind)
        )
        for number, request in zip(numbers, requests, strict=True):
            self.unknown_resources.pop(number, None)
            if request.unknown_resources:
                self.unknown_resources[number] = request.unknown_resources
            if number in self.sharing:  # at most 64 GPUs: the sum does not overflow
                gpu_request = self.sharing[number].queue_request(self._least_memory_mib)
                self.queue_request[number, ResourceKind.GPU] += gpu_request

    def _class_request(
        self, pod_class: PodClass, known: dict[tuple[SharedSpec, bool], _ClassRequest]
    ) -> _ClassRequest:
        sharing, shared_spec = read_gpu_sharing(pod_class, self._gpus), pod_class.shared_spec
        if sharing is None:
            self.sharing.pop(pod_class.number, None)
        else:
            self.sharing[pod_class.number] = sharing
        has_whole_gpus = sharing is None and not pod_class.is_gpu_reservation
        request = known.get((shared_spec, has_whole_gpus))
        if request is None:
            request = known[shared_spec, has_whole_gpus] = self._read_request(
                shared_spec.requests(), has_whole_gpus=has_whole_gpus
            )
        return request

    def _read_request(self, amounts: ResourceAmounts, *, has_whole_gpus: bool) -> _ClassRequest:
        """Encode a request; GPUs count only for pods that have whole ones."""
        encoder = self.encoder
        if not has_whole_gpus:
            amounts = {name: it for name, it in amounts.items() if name not in encoder.gpus}
        return _ClassRequest(
            encoder.request(amounts),
            encoder.queue_request(amounts),
            encoder.unknown_resources(amounts),
        )


def _extended(table: Ints, size: int) -> Ints:
    longer = np.zeros((size, table.shape[1]), dtype=np.int64)
    longer[: len(table)] = table
    return longer
