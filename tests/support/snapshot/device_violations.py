"""What a plan breaks of the rules for GPUs that pods share, and for MIG."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from scheduler.core.model.podgroup import PodSet, ReservedPlace, SchedulingSignature, podsets_of
from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.result import Plan, PodPlacement
from scheduler.core.model.snapshot import GpuMode, Snapshot

_WHOLE: Final = 1000


def device_violations(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield the pods that get other GPUs than they request, and the GPUs with too many shares."""
    for allocation in plan.allocations:
        for it in (*allocation.binds, *allocation.nominations):
            yield from _wrong_devices(snapshot, it)
    yield from SharedGpuUse(snapshot, plan).overused()


def share_on_node(snapshot: Snapshot, one: SchedulingSignature, node: int) -> int:
    """Return the thousandths of each GPU that a pod requests on a node; none fits above 1,000."""
    if one.device_share or not one.device_memory:
        return one.device_share
    memory = int(snapshot.nodes.gpu_memory[node])
    return -(-100 * one.device_memory // memory) * 10 if memory else _WHOLE + 1


def charged_gpus(snapshot: Snapshot, one: SchedulingSignature, node: int) -> int:
    """Return the thousandths of GPUs that a queue is charged for a pod on a node."""
    if one.device_memory and not one.device_share:
        return share_on_node(snapshot, one, node) * one.shared_devices
    return one.queue_request[2]


def released_places(snapshot: Snapshot, plan: Plan, podgroup: int) -> Iterator[ReservedPlace]:
    """Yield the reserved places that the pods of a PodGroup take, or give up."""
    placed = {
        it.pod
        for allocation in plan.allocations
        if allocation.podgroup == podgroup
        for it in (*allocation.binds, *allocation.nominations)
    }
    for podset in podsets_of(snapshot.podgroups[podgroup].tree):
        yield from podset.reserved_places[: sum(pod in placed for pod in podset.pending)]


def _wrong_devices(snapshot: Snapshot, placed: PodPlacement) -> Iterator[str]:
    pod, node, slots = placed.pod, placed.node, placed.slots
    one, name = snapshot.signatures[snapshot.pods.signature[pod]], snapshot.nodes.names[node]
    mode, gpus = snapshot.nodes.gpu_mode[node], list(snapshot.resources.gpus)
    if len(slots) != one.shared_devices or len({*slots}) != len(slots):
        yield f"pod {pod} requests shares of {one.shared_devices} GPUs and has {list(slots)}"
    if slots and not snapshot.nodes.allocatable[node, gpus].any():
        yield f"pod {pod} has shares of GPUs of node {name}, which has none"
    if slots and mode != GpuMode.WHOLE:
        yield f"pod {pod} has shares of GPUs of the MIG node {name}"
    devices = snapshot.devices
    rows = np.flatnonzero(devices.node == node)[
        [it for it in slots if it < sum(devices.node == node)]
    ]
    if (devices.releasing[rows] == devices.used[rows]).any():
        yield f"pod {pod} joins a GPU of node {name} that is being released"
    if slots and share_on_node(snapshot, one, node) > _WHOLE:
        yield f"pod {pod} requests more than a GPU of node {name} has"
    if one.requests_mig and mode not in {GpuMode.MIG, GpuMode.MIG_MIXED}:
        yield f"pod {pod} requests MIG profiles, and is on node {name}"
    if one.requests_mig and snapshot.nodes.closed_to_mig[node]:
        yield f"pod {pod} requests MIG profiles, and node {name} is closed to it"
    if any(one.request[column] for column in gpus) and mode == GpuMode.MIG_MIXED:
        yield f"pod {pod} requests whole GPUs, and is on node {name}"


class SharedGpuUse:
    """What is used of each shared GPU once a plan is carried out, [node][slot].

    `now` counts what terminates, and `later` counts what waits for that. Reservations have no
    slots: *relocated* are nodes, signatures and numbers of pods that no allocation names.
    """

    def __init__(
        self, snapshot: Snapshot, plan: Plan, relocated: Iterable[tuple[int, int, int]] = ()
    ) -> None:
        self._snapshot, nodes = snapshot, range(len(snapshot.nodes.names))
        devices = snapshot.devices
        self._known = [int((devices.node == node).sum()) for node in nodes]
        self.now = [devices.used[devices.node == node].tolist() for node in nodes]
        self.later = [
            (devices.used - devices.releasing)[devices.node == node].tolist() for node in nodes
        ]
        self._before = [*map(list, self.now)], [*map(list, self.later)]
        self._reserved = [0] * len(nodes)  # of which no slot is known
        self._evict(plan)
        self._place(plan)
        for node, signature, number in relocated:
            self._reserve(node, signature, number)

    def overused(self) -> Iterator[str]:
        """Yield the GPUs of which more is used than there is, unless it is no more than before."""
        for used_by_node, before_by_node, what in (
            (self.now, self._before[0], "used now"),
            (self.later, self._before[1], "used"),
        ):
            for node, used in enumerate(used_by_node):
                for slot, amount in enumerate(used):
                    before = before_by_node[node][slot] if slot < self._known[node] else 0
                    if amount > max(_WHOLE, before):
                        name = self._snapshot.nodes.names[node]
                        yield f"{amount} thousandths of GPU {slot} of node {name} are {what}"

    def taken(self) -> tuple[Ints, Ints]:
        """Return how much the plan takes for shares, of idle and of free, [node, resource].

        It takes whole GPUs that begin to be shared, with places for their reservation pods.
        """
        resources = self._snapshot.resources
        idle, free = (np.zeros_like(self._snapshot.nodes.idle) for _ in range(2))
        for amounts, used_by_node, before in zip(
            (idle, free), (self.now, self.later), self._before, strict=True
        ):
            for node, used in enumerate(used_by_node):
                column = _gpu_column(self._snapshot, node)
                if column == NONE:
                    continue
                more = sum(it > 0 for it in used) - sum(it > 0 for it in before[node])
                amounts[node, column] += _WHOLE * more
                new = sum(it > 0 for it in used[self._known[node] :])
                amounts[node, resources.pods] += new
        for node, reserved in enumerate(self._reserved):
            room = sum(_WHOLE - it for it in self.later[node] if 0 < it < _WHOLE)
            if reserved > room:  # at least so many more GPUs, wherever each share is
                gpus = -(-(reserved - room) // _WHOLE)
                free[node, _gpu_column(self._snapshot, node)] += gpus * _WHOLE
        return idle, free

    def _evict(self, plan: Plan) -> None:
        """Let the shares of evicted pods be released."""
        snapshot = self._snapshot
        for eviction in plan.evictions:
            for pod in eviction.pods:
                node, signature = int(snapshot.pods.node[pod]), snapshot.pods.signature[pod]
                slots = snapshot.devices.slots_of_pod.get(pod, ())
                self._add((node, int(signature), slots), -1, is_now=False)
            for row in eviction.podgroups if eviction.is_whole else ():
                for podset in self._podsets(row):
                    for place in podset.reserved_places:
                        self._add((place.node, place.signature, place.slots), -1, is_now=False)

    def _place(self, plan: Plan) -> None:
        """Add the shares of placed pods, and remove the shares of their reserved places."""
        signature = self._snapshot.pods.signature
        for row in {allocation.podgroup for allocation in plan.allocations}:
            for place in released_places(self._snapshot, plan, row):
                self._add((place.node, place.signature, place.slots), -1, is_now=True)
        for allocation in plan.allocations:
            for is_now, placements in (
                (True, allocation.binds),
                (False, allocation.nominations),
            ):
                for it in placements:
                    of = (it.node, int(signature[it.pod]), it.slots)
                    self._add(of, 1, is_now=is_now)
            expected = {it.name: it.expected_signature for it in self._podsets(allocation.podgroup)}
            for podset, node, number, _ in allocation.reservations:
                self._reserve(node, expected[podset], number)

    def _reserve(self, node: int, signature: int, number: int) -> None:
        one = self._snapshot.signatures[signature]
        share = share_on_node(self._snapshot, one, node)
        self._reserved[node] += number * one.shared_devices * share

    def _add(self, of: tuple[int, int, tuple[int, ...]], sign: int, *, is_now: bool) -> None:
        node, signature, slots = of
        share = share_on_node(self._snapshot, self._snapshot.signatures[signature], node)
        for used in (self.now[node], self.later[node]) if is_now else (self.later[node],):
            for slot in slots:
                used.extend([0] * (slot + 1 - len(used)))
                used[slot] += sign * share

    def _podsets(self, podgroup: int) -> tuple[PodSet, ...]:
        return podsets_of(self._snapshot.podgroups[podgroup].tree)


def _gpu_column(snapshot: Snapshot, node: int) -> int:
    has = (column for column in snapshot.resources.gpus if snapshot.nodes.allocatable[node, column])
    return next(has, NONE)
