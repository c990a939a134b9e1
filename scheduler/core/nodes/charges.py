"""What queues are charged for pods where that depends on their nodes: memory of GPUs is a share.

Before pods are placed it is known what they are charged at least, on the nodes where that is least.
"""

from typing import Final, NamedTuple

from scheduler.core.gang import SignatureRuns, Tasks
from scheduler.core.model.resources import Amounts, ResourceKind
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.devices import NodeDevices

_GPU: Final = ResourceKind.GPU


class ChargedPods(NamedTuple):
    signature: int
    node: int
    number: int


class NodeCharges:
    def __init__(self, snapshot: Snapshot, devices: NodeDevices) -> None:
        self._snapshot: Final = snapshot
        self._signatures: Final = snapshot.signatures
        self._devices: Final = devices
        self.depend_on_nodes: Final = any(
            it.least_queue_request is not None for it in self._signatures
        )

    def least(self, amounts: Amounts, requested: SignatureRuns) -> Amounts:
        """Return what pods are charged at least, of which *amounts* is the most."""
        cpu, memory, gpu = amounts
        for row, count in requested:
            signature = self._signatures[row]
            if signature.least_queue_request is not None:
                saved = signature.queue_request[_GPU] - signature.least_queue_request[_GPU]
                gpu -= count * saved
        return cpu, memory, gpu

    def on(self, signature: int, node: int) -> Amounts:
        """Return what a queue is charged for a pod on a node."""
        it = self._signatures[signature]
        if not it.is_charged_by_node:
            return it.queue_request
        cpu, memory, _ = it.queue_request
        gpus = [of.charged_gpus(signature, node) for of in self._devices.of[signature]]
        return cpu, memory, sum(gpus)

    def of(self, amounts: Amounts, tasks: Tasks, placed: PodGroupAllocation) -> Amounts:
        """Return what placed tasks are charged, of which *amounts* is the most."""
        cpu, memory, gpu = amounts
        for row, node, count in self.pods_charged_by_node(tasks, placed):
            most = self._signatures[row].queue_request[_GPU]
            gpu += count * (self.on(row, node)[_GPU] - most)
        return cpu, memory, gpu

    def pods_charged_by_node(self, tasks: Tasks, placed: PodGroupAllocation) -> list[ChargedPods]:
        signature_of = self._snapshot.pods.signature
        expected = {it.podset.name: it.podset.expected_signature for it in tasks}
        pods = [
            ChargedPods(int(signature_of[it.pod]), it.node, 1)
            for it in (*placed.binds, *placed.nominations)
        ]
        pods += [ChargedPods(expected[it.podset], it.node, it.number) for it in placed.reservations]
        return [it for it in pods if self._signatures[it.signature].is_charged_by_node]
