"""The requests of pod classes, of nodes and of their queue.

A pod that requests memory of GPUs requests more or less of them by the node that it is on. A class
has the request of a pending pod; `queue_requests_on` is about pods on nodes.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import NONE, Bools, Ints, ResourceKind
from scheduler.state.nodes.node_table import NodeTable, ResourceEncoder, UnknownResources
from scheduler.state.pods.class_table import PodClassTable, grown
from scheduler.state.pods.gpu_share_metadata import GpuSharing, MigAnnotations
from scheduler.state.pods.pod_class import PodClass, SharedSpec
from trainer_kai.api.names import MIG_PREFIX
from trainer_kai.policy.pods.requests import ResourceAmounts


class _ClassRequest(NamedTuple):
    """The request of one class: as a row, as queues count it, and resources that no node has."""

    request: list[int]
    queue_request: list[int]
    unknown_resources: UnknownResources
    requests_mig: bool


class PodRequests:
    def __init__(
        self,
        encoder: ResourceEncoder,
        nodes: NodeTable,
        claimed_gpus: Callable[[PodClass], int] = lambda _: 0,
    ) -> None:
        """*claimed_gpus* are what a pod of a class is charged for GPUs that it gets by claims."""
        self.encoder: Final = encoder
        self._nodes: Final = nodes
        self._claimed_gpus: Final = claimed_gpus
        self._least_memory, self._most_memory = _least_and_most(nodes.gpu_memory)
        self.unknown_resources: Final[dict[int, UnknownResources]] = {}
        self.sharing: Final[dict[int, GpuSharing]] = {}
        self._least_gpu_request: Final[dict[int, int]] = {}
        self._requesting_mig: Final[set[int]] = set()
        width = len(encoder.names)
        self.request: Ints = np.zeros((0, width), dtype=np.int64)
        self.queue_request: Ints = np.zeros((0, len(ResourceKind)), dtype=np.int64)
        self._requests_memory: Bools = np.zeros(0, dtype=np.bool_)  # of GPUs

    def has_gpu(self, pod_class: int) -> bool:
        """Say whether pods of a class request a GPU, or a part of one."""
        return (
            bool(self.queue_request[pod_class, ResourceKind.GPU])
            or pod_class in self.sharing
            or pod_class in self._requesting_mig
        )

    def requests_mig(self, pod_class: int) -> bool:
        return pod_class in self._requesting_mig

    def memory_of(self, node: int) -> int:
        return int(self._nodes.gpu_memory[node])

    def share_on(self, pod_class: int, node: int) -> int:
        """Return the thousandths of each shared GPU that a pod of a class has on a node."""
        return self.sharing[pod_class].thousandths_of_device(self.memory_of(node))

    def least_gpu_request(self, pod_class: int) -> int | None:
        """Return what a pending pod is charged on the largest GPU; None if that is no less."""
        return self._least_gpu_request.get(pod_class)

    def beyond_pending(self, pod_class: int, node: int) -> int:
        """Return how much more GPU a pod of a class is charged on a node than a pending one."""
        sharing = self.sharing.get(pod_class)
        if sharing is None or node == NONE or not sharing.mib:
            return 0
        on_node = sharing.queue_request(self.memory_of(node))
        return on_node - sharing.queue_request(self._least_memory)

    def queue_requests_on(self, numbers: Ints, nodes: Ints) -> Ints:
        """Return what queues are charged for pods, by their classes and nodes, [pod, kind]."""
        amounts: Ints = self.queue_request[numbers]
        for number, node, at in self.memory_pods(numbers, nodes):
            amounts[at, ResourceKind.GPU] += self.beyond_pending(number, node)
        return amounts

    def memory_pods(self, numbers: Ints, nodes: Ints) -> Iterator[tuple[int, int, Ints]]:
        """Yield the pods on nodes that request memory of GPUs, by class and memory of the node.

        Given are classes and nodes of pods; yielded are a class, one of the nodes with equal
        memory, and the positions of the pods there.
        """
        if not self.sharing:
            return
        some = np.flatnonzero(self._requests_memory[numbers] & (nodes != NONE))
        if not len(some):
            return
        memory = self._nodes.gpu_memory[nodes[some]]
        pairs, first, at = np.unique(
            np.stack((numbers[some], memory)), axis=1, return_index=True, return_inverse=True
        )
        order = np.argsort(at.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(at.reshape(-1), minlength=pairs.shape[1]))[:-1]
        for position, own in zip(first.tolist(), np.split(order, ends), strict=True):
            pod = some[position]
            yield int(numbers[pod]), int(nodes[pod]), some[own]

    def read(self, numbers: list[int], class_table: PodClassTable) -> None:
        size = len(class_table.serial)
        if size > len(self.request):
            self.request = grown(self.request, size)
            self.queue_request = grown(self.queue_request, size)
            self._requests_memory = grown(self._requests_memory, size)
        known: dict[tuple[SharedSpec, bool, MigAnnotations], _ClassRequest] = {}
        requests = [self._class_request(class_table[number], known) for number in numbers]
        width, count = len(self.encoder.names), len(requests)
        self.request[numbers] = np.array([it.request for it in requests]).reshape(count, width)
        self.queue_request[numbers] = np.array([it.queue_request for it in requests]).reshape(
            count, len(ResourceKind)
        )
        for number, request in zip(numbers, requests, strict=True):
            self._forget(number)
            if request.unknown_resources:
                self.unknown_resources[number] = request.unknown_resources
            if request.requests_mig:
                self._requesting_mig.add(number)
            if class_table.has_claims[number]:
                gpus = self._claimed_gpus(class_table[number])
                self.queue_request[number, ResourceKind.GPU] += gpus
            sharing = class_table[number].gpu_sharing
            if isinstance(sharing, GpuSharing):
                self._read_sharing(number, sharing)

    def _forget(self, number: int) -> None:
        self.unknown_resources.pop(number, None)
        self._requesting_mig.discard(number)
        self.sharing.pop(number, None)
        self._least_gpu_request.pop(number, None)
        self._requests_memory[number] = False

    def _read_sharing(self, number: int, sharing: GpuSharing) -> None:
        """Charge the shares of a class; at most 64 GPUs, so the sum does not overflow."""
        self.sharing[number] = sharing
        self._requests_memory[number] = sharing.mib > 0
        whole = int(self.queue_request[number, ResourceKind.GPU])
        most = sharing.queue_request(self._least_memory)
        least = sharing.queue_request(self._most_memory)
        self.queue_request[number, ResourceKind.GPU] = whole + most
        if least < most:
            self._least_gpu_request[number] = whole + least

    def _class_request(
        self,
        pod_class: PodClass,
        known: dict[tuple[SharedSpec, bool, MigAnnotations], _ClassRequest],
    ) -> _ClassRequest:
        has_whole_gpus = not pod_class.is_gpu_reservation
        mig = pod_class.mig_annotations
        key = pod_class.shared_spec, has_whole_gpus, mig
        request = known.get(key)
        if request is None:
            amounts = pod_class.shared_spec.requests()
            if not has_whole_gpus:
                gpus = self.encoder.gpus
                amounts = {name: it for name, it in amounts.items() if name not in gpus}
            request = known[key] = self._read_request(amounts, mig)
        return request

    def _read_request(self, amounts: ResourceAmounts, mig: MigAnnotations) -> _ClassRequest:
        encoder = self.encoder
        requests_mig = any(it.startswith(MIG_PREFIX) and amounts[it] > 0 for it in amounts)
        if mig:
            more = {name: max(amounts.get(name, 0), 0) + 1000 * count for name, count in mig}
            amounts = {**amounts, **more}
        return _ClassRequest(
            encoder.request(amounts),
            encoder.queue_request(amounts),
            encoder.unknown_resources(amounts),
            requests_mig,
        )


def _least_and_most(gpu_memory: Ints) -> tuple[int, int]:
    """Return the memory of the smallest and of the largest GPU; 0 if none is known."""
    known = gpu_memory[gpu_memory > 0]
    return (int(known.min()), int(known.max())) if len(known) else (0, 0)
