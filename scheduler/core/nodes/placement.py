"""Placement of the tasks of one attempt on nodes: all of them, or none."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.gang import AssignedTasks, PodSetTasks, SignatureRuns, Tasks, is_satisfied
from scheduler.core.model.podgroup import ReservationCause, ReservedPlace, SubGroupTree, podsets_of
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import PodGroupAllocation, PodPlacement, Policies, Reservation
from scheduler.core.nodes.devices import WHOLE_GPU, Slots
from scheduler.core.nodes.ranking import ALL_NODES, NodeRanking, NodeSubset, ScoredResource
from scheduler.core.nodes.statement import Statement

# To which nodes the pods of a signature are restricted.
SubsetOf: TypeAlias = Callable[[int], NodeSubset]

_MAX_RANKINGS: Final = 512  # each is as large as there are nodes
_NO_SLOTS: Final[Slots] = ()


class PlacementFailure(NamedTuple):
    """A pod that fits on no node; pods placed before it are still in the statement."""

    signature: int
    placed: int
    checkpoint: int  # to which the statement must be rolled back
    # What pods of the attempt give up, by their positions.
    reserved_places: tuple[tuple[int, ReservedPlace], ...] = ()


class _PlacedPods(NamedTuple):
    tasks_index: int
    pod: int  # or NONE: pods that do not exist yet
    node: int
    signature: int
    on_idle: bool = False
    pod_count: int = 1
    slots: Slots = ()


def _all_nodes(_signature: int) -> NodeSubset:
    return ALL_NODES


class Placer:
    def __init__(self, statement: Statement, policies: Policies) -> None:
        self.statement: Final = statement
        self._policies = policies
        # By signature and key of the subset.
        self._rankings: dict[tuple[int, tuple[int, ...]], NodeRanking] = {}
        self._scored_resources = {
            it: ScoredResource(statement.snapshot, has_gpu=it) for it in (False, True)
        }
        # By PodGroup that waits for what is being released: what need not wait.
        self.allocated_now: Final[dict[int, AssignedTasks]] = {}
        self._signature_of: Final[list[int]] = statement.snapshot.pods.signature.tolist()

    def ranking(self, signature: int, subset: NodeSubset = ALL_NODES) -> NodeRanking:
        key = signature, subset.key
        ranking = self._rankings.get(key)
        if ranking is None:
            if len(self._rankings) >= _MAX_RANKINGS:  # the oldest one is dropped
                del self._rankings[next(iter(self._rankings))]
            scored_resource = self._scored_resources[
                self.statement.snapshot.signatures[signature].has_gpu
            ]
            ranking = self._rankings[key] = NodeRanking(
                self.statement, self._policies, signature, scored_resource, subset
            )
        return ranking

    def signature_runs(self, tasks: Tasks) -> SignatureRuns:
        found: list[tuple[int, int]] = []
        last, count = NONE, 0
        for podset, pods, later in tasks:
            for pod in pods:
                signature = self._signature_of[pod]
                if signature != last:
                    found.append((last, count))
                    last, count = signature, 0
                count += 1
            if later:
                if podset.expected_signature != last:
                    found.append((last, count))
                    last, count = podset.expected_signature, 0
                count += later
        found.append((last, count))
        return tuple([run for run in found if run[1]])

    def place(
        self,
        podgroup: int,
        tasks: Tasks,
        assigned: AssignedTasks,
        *,
        is_pipelined: bool = False,
        subset_of: SubsetOf = _all_nodes,
    ) -> PodGroupAllocation | PlacementFailure:
        """Place all of some tasks, or return the pod that fits on no node of its subset.

        With *is_pipelined* all pods wait, even if there are idle resources.
        """
        placements = self._place_all(tasks, assigned, subset_of)
        if isinstance(placements, PlacementFailure):
            return placements
        if is_pipelined:
            placements = [self._pipelined(placed_pods) for placed_pods in placements]
        return _podgroup_allocation(
            podgroup, tasks, self._pipeline_together(podgroup, tasks, assigned, placements)
        )

    def fits(
        self, tasks: Tasks, assigned: AssignedTasks, beside: Tasks = ()
    ) -> list[tuple[int, int, int]] | None:
        """Return nodes, signatures and numbers of pods if all tasks fit; nothing is placed.

        So must tasks *beside*, after these, which then wait.
        """
        checkpoint = self.statement.checkpoint
        placements = self._place_all(tasks, assigned)
        if beside and not isinstance(placements, PlacementFailure):
            placements = [self._pipelined(placed_pods) for placed_pods in placements]
            others = self._place_all(beside, AssignedTasks())
            placements = others if isinstance(others, PlacementFailure) else [*placements, *others]
        self.statement.roll_back(checkpoint)
        return (
            None
            if isinstance(placements, PlacementFailure)
            else [(it.node, it.signature, it.pod_count) for it in placements]
        )

    def restore_allocated_now(self, podgroup: int, before: AssignedTasks | None) -> None:
        """Call it after the statement was rolled back."""
        if before is not None:
            self.allocated_now[podgroup] = before
        else:
            self.allocated_now.pop(podgroup, None)

    def fits_beside(
        self, reserved: list[tuple[int, int, int]], tasks: Tasks, assigned: AssignedTasks
    ) -> bool:
        """Say whether tasks fit when places on nodes are reserved before; nothing is placed.

        Places are nodes, signatures and numbers. Those with shares of GPUs get the fullest ones.
        """
        statement = self.statement
        checkpoint, fits = statement.checkpoint, True
        for node, signature, count in reserved:
            slots: Slots | None = ()
            if statement.devices.devices_of[signature]:
                free = statement.free[node].tolist()
                slots = statement.devices.packed(signature, node, free)
                fits = fits and slots is not None
            statement.allocate(node, signature, on_idle=False, count=count, slots=slots or ())
        fits = fits and self.fits(tasks, assigned) is not None
        statement.roll_back(checkpoint)
        return fits

    def reserve(self, tasks: Tasks) -> list[tuple[int, int, int]] | None:
        """Place pods that do not exist; return task indexes, nodes and numbers if all fit."""
        placements = self._place_all(tasks, AssignedTasks())
        return (
            None
            if isinstance(placements, PlacementFailure)
            else [(it.tasks_index, it.node, it.pod_count) for it in placements]
        )

    def _place_all(
        self, tasks: Tasks, assigned: AssignedTasks, subset_of: SubsetOf = _all_nodes
    ) -> list[_PlacedPods] | PlacementFailure:
        checkpoint = self.statement.checkpoint
        placements: list[_PlacedPods] = []

        def failed(signature: int) -> PlacementFailure:
            placed = sum([it.pod_count for it in placements])
            return PlacementFailure(
                signature, placed, checkpoint, tuple(_places_given_up(tasks, assigned))
            )

        for i, podset_tasks in enumerate(tasks):
            reserved_places = (
                assigned.unused_places(podset_tasks.podset)
                if podset_tasks.podset.reserved_places
                else ()
            )
            ranking, last = None, NONE
            for j, pod in enumerate(podset_tasks.pods):
                signature = self._signature_of[pod]
                if ranking is None or signature != last:
                    ranking, last = self.ranking(signature, subset_of(signature)), signature
                node = self._node_for(
                    ranking, reserved_places[j] if j < len(reserved_places) else None
                )
                if node == NONE:
                    return failed(signature)
                placements.append(self._allocate(i, pod, node, signature))
            if podset_tasks.expected:
                expected = podset_tasks.podset.expected_signature
                ranking = self.ranking(expected, subset_of(expected))
                if not self._place_expected(i, podset_tasks, ranking, placements):
                    return failed(expected)
        return placements

    def _allocate(
        self, tasks_index: int, pod: int, node: int, signature: int, count: int = 1
    ) -> _PlacedPods:
        """Add pods to the statement; return them, with slots, and whether they fit into idle."""
        statement = self.statement
        on_idle, slots = statement.fits_idle(node, signature), _NO_SLOTS
        if statement.devices.devices_of[signature]:
            choice = statement.choose_devices(node, signature)
            assert choice is not None  # the node was ranked as one that fits
            on_idle, slots = on_idle and choice.on_idle, choice.slots
        statement.allocate(node, signature, on_idle=on_idle, count=count, slots=slots)
        return _PlacedPods(tasks_index, pod, node, signature, on_idle, count, slots)

    def _place_expected(
        self,
        number: int,
        podset_tasks: PodSetTasks,
        ranking: NodeRanking,
        placements: list[_PlacedPods],
    ) -> bool:
        """Place the expected pods of a PodSet, many in a row on one node; say if all fit."""
        signature, left = podset_tasks.podset.expected_signature, podset_tasks.expected
        while left:
            node = ranking.best()
            if node == NONE:
                return False
            count = ranking.pods_in_a_row(node, left)
            placements.append(self._allocate(number, NONE, node, signature, count))
            left -= count
        return True

    def _pipeline_together(
        self, podgroup: int, tasks: Tasks, assigned: AssignedTasks, placements: list[_PlacedPods]
    ) -> list[_PlacedPods]:
        """Let all pods wait if one does, unless the PodGroup is satisfied without it."""
        info = self.statement.snapshot.podgroups[podgroup]
        if podgroup not in self.allocated_now:
            # Without running pods it has no reserved places.
            pipelined = self._pipelined_places(info.tree) if info.has_running else {}
            if not pipelined and all(placed_pods.on_idle for placed_pods in placements):
                return placements
            later = {name: assigned.expected.get(name, 0) - n for name, n in pipelined.items()}
            self.allocated_now[podgroup] = AssignedTasks(
                dict(assigned.pods), {**assigned.expected, **later}
            )
        before = self.allocated_now[podgroup]
        if not any(placed_pods.on_idle for placed_pods in placements):
            return placements
        now = _with_allocated_now(before, tasks, placements)
        if not is_satisfied(info.tree, now):
            now = before
            placements = [self._pipelined(placed_pods) for placed_pods in placements]
        self.allocated_now[podgroup] = AssignedTasks(dict(now.pods), dict(now.expected))
        return placements

    def _pipelined_places(self, tree: SubGroupTree) -> dict[str, int]:
        found: dict[str, int] = {}
        for podset in podsets_of(tree):
            for reserved_place in podset.reserved_places:
                if self._is_pipelined_place(reserved_place):
                    found[podset.name] = found.get(podset.name, 0) + 1
        return found

    def _is_pipelined_place(self, place: ReservedPlace) -> bool:
        snapshot = self.statement.snapshot
        request = snapshot.signatures[place.signature].request
        idle = snapshot.nodes.idle[place.node]
        if any(n and has < 0 for n, has in zip(request, idle, strict=True)):
            return True
        if not place.slots:
            return False
        devices = snapshot.devices
        first = int(np.searchsorted(devices.node, place.node))
        return bool(
            idle[self.statement.devices.column[place.node]] < 0
            or any(devices.used[first + slot] > WHOLE_GPU for slot in place.slots)
        )

    def _node_for(self, ranking: NodeRanking, reserved_place: ReservedPlace | None) -> int:
        if reserved_place is not None:
            self.statement.deallocate(
                reserved_place.node, reserved_place.signature, reserved_place.slots
            )
            if ranking.fits(reserved_place.node):
                return reserved_place.node
        return ranking.best()

    def _pipelined(self, placed_pods: _PlacedPods) -> _PlacedPods:
        if not placed_pods.on_idle:
            return placed_pods
        self.statement.pipeline(
            placed_pods.node, placed_pods.signature, placed_pods.pod_count, placed_pods.slots
        )
        return placed_pods._replace(on_idle=False)


def _places_given_up(tasks: Tasks, assigned: AssignedTasks) -> Iterator[tuple[int, ReservedPlace]]:
    """Yield the reserved places that pods give up, by the positions of these among all pods."""
    first = 0
    for podset_tasks in tasks:
        for at, reserved_place in enumerate(
            assigned.unused_places(podset_tasks.podset)[: len(podset_tasks.pods)]
        ):
            yield first + at, reserved_place
        first += len(podset_tasks.pods) + podset_tasks.expected


def _with_allocated_now(
    assigned: AssignedTasks, tasks: Tasks, placements: list[_PlacedPods]
) -> AssignedTasks:
    now = AssignedTasks(dict(assigned.pods), dict(assigned.expected))
    for i, podset_tasks in enumerate(tasks):
        here = [it for it in placements if it.tasks_index == i and it.on_idle]
        pods = tuple(it.pod for it in here if it.pod != NONE)
        expected = sum(it.pod_count for it in here) - len(pods)
        now.add((PodSetTasks(podset_tasks.podset, pods, expected),))
    return now


def _podgroup_allocation(
    podgroup: int, tasks: Tasks, placements: list[_PlacedPods]
) -> PodGroupAllocation:
    binds: list[PodPlacement] = []
    nominations: list[PodPlacement] = []
    reserved: dict[tuple[str, int], int] = {}
    for podset_tasks, pod, node, _, on_idle, count, slots in placements:
        if pod == NONE:
            key = (tasks[podset_tasks].podset.name, node)
            reserved[key] = reserved.get(key, 0) + count
        else:
            (binds if on_idle else nominations).append(PodPlacement(pod, node, slots))
    reservations = [
        Reservation(podset, node, n, ReservationCause.ANTICIPATED)
        for (podset, node), n in reserved.items()
    ]
    return PodGroupAllocation(podgroup, tuple(binds), tuple(nominations), tuple(reservations))
