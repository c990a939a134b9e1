"""How many pods of one signature fit on the nodes, as they are and on an empty cluster.

A PodGroup that would not fit on an empty cluster comes after all others of its queue: first, it
would keep the fair share of the queue from them, for nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import NONE, UNBOUND, Amounts, Bools, Ints, ResourceKind, total
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.devices import WHOLE_GPU, gpu_columns, least_share, share_on_nodes
from scheduler.core.nodes.placement import Placer
from scheduler.core.nodes.ranking import ALL_NODES, NodeRanking, NodeSubset
from scheduler.core.nodes.statement import Statement

_MAX_CAPACITIES: Final = 64  # each is as large as there are nodes
_UNLIMITED: Final = 2**40  # for pods that request nothing
# A request, the shares of GPUs in it, and the nodes that it fits when they are empty.
_AlikePods: TypeAlias = tuple[tuple[int, ...], tuple[int, int, int], bytes]


class PodCapacity:
    """How many pods of one signature fit, where only resources matter."""

    def __init__(self, statement: Statement, ranking: NodeRanking) -> None:
        self._statement: Final = statement
        self._requests: Final = tuple((r, n) for r, n in enumerate(ranking.signature.request) if n)
        self._row: Final = ranking.row
        self._shared_devices: Final = ranking.signature.shared_devices
        self.is_open: Final[list[bool]] = ranking.fits_empty.tolist()
        self._per_node: Final = self._fitting_on_all(ranking)
        self._seen = len(statement.changed_nodes)
        self._trial: dict[int, int] = {}  # by node, with other free amounts
        self._total = sum(self._per_node)

    @property
    def total(self) -> int:
        return self._total

    def refresh(self) -> None:
        """Drop all amounts that were set, and update the nodes that have changed."""
        changed_nodes = self._statement.changed_nodes
        if not self._trial and self._seen == len(changed_nodes):
            return
        for node, pod_count in self._trial.items():
            self._total += self._per_node[node] - pod_count
        self._trial.clear()
        for node in set(changed_nodes[self._seen :]):
            if self.is_open[node]:
                pod_count = self._fitting(
                    node,
                    self._statement.free[node].tolist(),
                    self._statement.devices.used_later(node),
                )
                self._total += pod_count - self._per_node[node]
                self._per_node[node] = pod_count
        self._seen = len(changed_nodes)

    def set_free(self, node: int, free: Sequence[int], used_later: Sequence[int]) -> None:
        pod_count = self._fitting(node, free, used_later)
        self._total += pod_count - self._trial.get(node, self._per_node[node])
        self._trial[node] = pod_count

    def _fitting(self, node: int, free: Sequence[int], used_later: Sequence[int]) -> int:
        """Of pods with shares of GPUs return an upper bound."""
        pod_count = _UNLIMITED
        for resource, amount in self._requests:
            here = free[resource] // amount
            if here < pod_count:  # noqa: PLR1730 - called for every eviction unit, and so faster
                pod_count = here
        if self._shared_devices:
            pod_count = min(pod_count, self._fitting_shares(node, free, used_later))
        return max(pod_count, 0)

    def _fitting_shares(self, node: int, free: Sequence[int], used_later: Sequence[int]) -> int:
        devices = self._statement.devices
        share, column = devices.share(self._row, node), devices.column[node]
        if share > WHOLE_GPU or column == NONE or free[column] < 0:
            return 0
        shares = sum([(WHOLE_GPU - used) // share for used in used_later if 0 < used < WHOLE_GPU])
        shares += max(free[column] // WHOLE_GPU, 0) * (WHOLE_GPU // share)
        return shares // self._shared_devices

    def _fitting_on_all(self, ranking: NodeRanking) -> list[int]:
        if self._shared_devices:
            free, used_later = self._statement.free.tolist(), self._statement.devices.used_later
            return [
                self._fitting(node, free[node], used_later(node)) if is_open else 0
                for node, is_open in enumerate(self.is_open)
            ]
        if not self._requests or not len(ranking.fits_empty):
            return [_UNLIMITED if is_open else 0 for is_open in self.is_open]
        columns = [r for r, _ in self._requests]
        each = self._statement.free[:, columns] // np.array([n for _, n in self._requests])
        pod_count: list[int] = np.where(
            ranking.fits_empty, each.min(axis=1).clip(min=0), 0
        ).tolist()
        return pod_count


class PodCapacities:
    def __init__(self, placer: Placer) -> None:
        self._placer: Final = placer
        # By signature and key of the subset.
        self._capacities: Final[dict[tuple[int, tuple[int, ...]], PodCapacity]] = {}

    def of(self, signature: int, subset: NodeSubset = ALL_NODES) -> PodCapacity:
        key = signature, subset.key
        capacity = self._capacities.get(key)
        if capacity is None:
            if len(self._capacities) >= _MAX_CAPACITIES:  # the oldest one is dropped
                del self._capacities[next(iter(self._capacities))]
            capacity = self._capacities[key] = PodCapacity(
                self._placer.statement, self._placer.ranking(signature, subset)
            )
        return capacity


class EmptyClusterFit:
    """Which requests fit on an empty cluster; other pods and their affinity do not matter."""

    def __init__(self, placer: Placer, usage: Usage) -> None:
        self._placer: Final = placer
        self._snapshot: Final = placer.statement.snapshot
        self._paths: Final = usage.paths
        self._limits: Final[list[list[float]]] = self._snapshot.queues.limit.tolist()
        self._known: Final[dict[SignatureRuns, bool]] = {}
        self._fitting: Final[dict[_AlikePods, int]] = {}

    def fits_empty_cluster(self, queue: int, amounts: Amounts, signatures: SignatureRuns) -> bool:
        for q in self._paths[queue]:
            for requested, limit in zip(amounts, self._limits[q], strict=True):
                if requested > limit != UNBOUND:
                    return False
        if signatures not in self._known:
            self._known[signatures] = self._fits_empty_nodes(signatures)
        return self._known[signatures]

    def _fits_empty_nodes(self, signatures: SignatureRuns) -> bool:
        """Count pods together that request the same and that fit on the same nodes."""
        needed = Counter[_AlikePods]()
        for row, number in signatures:
            signature = self._snapshot.signatures[row]
            fits_empty = self._placer.ranking(row).fits_empty
            shares = signature.shared_devices, signature.device_share, signature.device_memory
            alike = signature.request, shares, fits_empty.tobytes()
            needed[alike] += number
            if alike not in self._fitting:
                self._fitting[alike] = count_fitting_pods(
                    self._snapshot, self._snapshot.nodes.allocatable, signature, fits_empty
                )
        return all(number <= self._fitting[alike] for alike, number in needed.items())


def free_amount(statement: Statement, kind: ResourceKind) -> int:
    """Return what is free of a kind on all nodes, of shared GPUs as well."""
    resources, free = statement.snapshot.resources, statement.free
    columns = [r for r, kind_of_r in enumerate(resources.kinds) if kind_of_r == kind]
    found = sum([total(free[:, r].clip(min=0)) * resources.weights[r] for r in columns])
    if kind == ResourceKind.GPU:
        found += statement.devices.free_shares
    return found


def requested_gpus(snapshot: Snapshot, signatures: SignatureRuns, charged_gpus: int) -> int:
    """Return how many thousandths of GPUs pods take at least, which are charged as *charged_gpus*.

    Queues are charged for hundredths of a share.
    """
    found = charged_gpus
    for row, count in signatures:
        signature = snapshot.signatures[row]
        if signature.shared_devices:
            share = least_share(snapshot, signature)
            charged_share = signature.queue_request[ResourceKind.GPU]
            found += count * (signature.shared_devices * share - charged_share)
    return found


def count_fitting_pods(
    snapshot: Snapshot, amounts: Ints, signature: SchedulingSignature, nodes: Bools
) -> int:
    """Return how many pods of a signature fit on some nodes that have *amounts*, by node.

    Of GPUs with shares, as if the nodes had no others.
    """
    requested = [r for r, n in enumerate(signature.request) if n]
    if not requested or not nodes.any():
        return 0
    request = np.array([signature.request[r] for r in requested])
    fitting: Ints = np.maximum(amounts[:, requested] // request, 0).min(axis=1)
    if signature.shared_devices:
        fitting = np.minimum(fitting, _fitting_shares(snapshot, amounts, signature))
    return total(np.maximum(fitting[nodes], 0))


def _fitting_shares(snapshot: Snapshot, amounts: Ints, signature: SchedulingSignature) -> Ints:
    """Return how many pods with shares fit on the GPUs of each node, [node].

    Each GPU needs a place for its reservation pod: with more GPUs more shares fit,
    and for fewer pods. The most fit with one of the two numbers where these cross.
    """
    devices, column = signature.shared_devices, gpu_columns(snapshot)
    gpus = amounts[np.arange(len(column)), np.maximum(column, 0)] // WHOLE_GPU
    gpus = np.where(column == NONE, 0, gpus)
    places = amounts[:, snapshot.resources.pods]
    each = WHOLE_GPU // np.clip(share_on_nodes(snapshot, signature), 1, 2 * WHOLE_GPU)
    crossing = -(-(places + 1) * devices // (each + devices)) - 1
    found: Ints = np.zeros(len(column), dtype=np.int64)
    for used in (crossing, crossing + 1):
        shared = np.minimum(np.maximum(used, devices), gpus)
        fitting = np.minimum(shared * each // devices, places - shared)
        found = np.maximum(found, np.where(shared >= devices, fitting, 0))
    return found
