"""Placement of the tasks of a request on nodes: all of them, or none.

A request says what is to be placed, by which strategy, and how. Its alternatives are tried in their
order until one fits and is accepted; after each of the others everything is as it was before.
"""

from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from scheduler.core.gang import (
    NONE_ASSIGNED,
    AssignedTasks,
    PodSetTasks,
    SignatureRuns,
    Tasks,
    is_satisfied,
)
from scheduler.core.model.podgroup import (
    PodSet,
    ReservationCause,
    ReservedPlace,
    SubGroupTree,
    podsets_of,
)
from scheduler.core.model.resources import NO_DEVICES, NONE, HeldDevices
from scheduler.core.model.result import (
    PodGroupAllocation,
    PodPlacement,
    Policies,
    QuotaRefusal,
    Reservation,
)
from scheduler.core.nodes.ranking import NodeRanking, ScoredResource
from scheduler.core.nodes.strategies.strategy import (
    ALL_NODES,
    EVERYWHERE,
    Alternative,
    Alternatives,
    NodeSubset,
    PlacementStrategy,
)
from scheduler.core.nodes.working_nodes import WorkingNodes

_MAX_RANKINGS: Final = 512  # each is as large as there are nodes
T = TypeVar("T")


class PlacementRequest(NamedTuple):
    """What is to be placed, where it may be, and how."""

    tasks: Tasks
    assigned: AssignedTasks = NONE_ASSIGNED  # of its PodGroup, before
    strategy: PlacementStrategy = EVERYWHERE
    podgroup: int = NONE  # it matters where pods wait for each other
    is_pipelined: bool = False  # all of them wait, even if there are idle resources
    pinned: Alternative | None = None  # the alternative of the strategy that fitted on trial

    @property
    def is_gang(self) -> bool:
        """Say whether it is of several pods of one PodGroup; relocated pods each count alone."""
        pod_count = sum([len(pods) + later for _, pods, later in self.tasks])
        return pod_count > 1 and self.podgroup != NONE


class PlacementFailure(NamedTuple):
    """A pod that fits on no node; pods placed before it are still in the statement."""

    signature: int
    placed: int
    checkpoint: int  # to which the statement must be rolled back
    # What pods of the attempt give up, by their positions.
    reserved_places: tuple[tuple[int, ReservedPlace], ...] = ()
    subset: NodeSubset = ALL_NODES  # to which the pod was restricted


class RefusedPlacement(NamedTuple):
    """The tasks fit, and may not be placed like that."""

    allocation: PodGroupAllocation
    refusal: QuotaRefusal


class MustWait(Enum):
    """The tasks may only be placed if all of them wait."""

    MUST_WAIT = 0


MUST_WAIT: Final = MustWait.MUST_WAIT
# Says whether an allocation may stay; of one that is pipelined it is asked again.
PlacementCheck: TypeAlias = Callable[[PodGroupAllocation, bool], QuotaRefusal | MustWait | None]
_PlacedAlternative: TypeAlias = T | PlacementFailure | RefusedPlacement


class _PlacedPods(NamedTuple):
    tasks_index: int
    pod: int  # or NONE: pods that do not exist yet
    node: int
    signature: int
    on_idle: bool = False
    pod_count: int = 1
    held: HeldDevices = ()


class TrialPods(NamedTuple):
    """Pods that fit on a node on trial."""

    node: int
    signature: int
    pod_count: int


class TrialPlacement(NamedTuple):
    """Where tasks fit on trial; of several alternatives, in which one."""

    pods: list[TrialPods]
    alternative: Alternative


class Placer:
    def __init__(self, nodes: WorkingNodes, policies: Policies) -> None:
        self.nodes: Final = nodes
        self._statement: Final = nodes.statement
        self._resources: Final = nodes.resources
        self._devices: Final = nodes.devices
        self._policies = policies
        # By signature, key of the subset, and whether the pods are placed as gangs are.
        self._rankings: dict[tuple[int, Hashable, bool], NodeRanking] = {}
        self._scored_resources = {
            it: ScoredResource(nodes.snapshot, policies, has_gpu=it) for it in (False, True)
        }
        # By PodGroup that waits for what is being released: what need not wait.
        self.allocated_now: Final[dict[int, AssignedTasks]] = {}
        self._signature_of: Final[list[int]] = nodes.snapshot.pods.signature.tolist()

    def ranking(
        self, signature: int, subset: NodeSubset = ALL_NODES, *, is_gang: bool = False
    ) -> NodeRanking:
        """Return the nodes for a pod; *is_gang* says whether others are placed with it."""
        policies = self._policies
        if is_gang and policies.of_gangs is not None and self._uses_whole_gpus(signature):
            policies = policies.of_gangs
        key = signature, subset.key, policies is not self._policies
        ranking = self._rankings.get(key)
        if ranking is None:
            if len(self._rankings) >= _MAX_RANKINGS:  # the oldest one is dropped
                del self._rankings[next(iter(self._rankings))]
            has_gpu = self.nodes.snapshot.signatures[signature].has_gpu
            ranking = self._rankings[key] = NodeRanking(
                self.nodes, policies, signature, self._scored_resources[has_gpu], subset
            )
        return ranking

    def _uses_whole_gpus(self, signature: int) -> bool:
        it = self.nodes.snapshot.signatures[signature]
        return it.has_gpu and not it.shared_devices

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
        self, request: PlacementRequest, check: PlacementCheck | None = None
    ) -> PodGroupAllocation | PlacementFailure | QuotaRefusal:
        """Place all of some tasks, or return the pod that fits on no node, or the first refusal.

        After a failure the pods placed before are still in the statement. Of several alternatives
        the first one is explained.
        """
        only = request.pinned or request.strategy.only
        if only is not None:  # of most, and so without a closure
            placed = self._place_checked(request, check, only)
            return placed.refusal if isinstance(placed, RefusedPlacement) else placed
        attempt = partial(self._place_checked, request, check)
        return self._first_placed(request, attempt, is_trial=False)

    def fits(
        self, request: PlacementRequest, beside: PlacementRequest | None = None
    ) -> TrialPlacement | None:
        """Return the pods of each node if all tasks fit; nothing is placed.

        So must the tasks *beside*, after these, which then wait.
        """
        checkpoint = self._statement.checkpoint

        def attempt(alternative: Alternative) -> TrialPlacement | PlacementFailure:
            placed = self._place_alternative(request, alternative)
            if isinstance(placed, PlacementFailure):
                return placed
            if beside is not None:
                placed = [self._pipelined(placed_pods) for placed_pods in placed]
                others = self._place_unchecked(beside)
                if isinstance(others, PlacementFailure):
                    return others
                placed += others
            pods = [TrialPods(it.node, it.signature, it.pod_count) for it in placed]
            return TrialPlacement(pods, alternative)

        placed = self._first_placed(request, attempt)
        self._statement.roll_back(checkpoint)
        return placed if isinstance(placed, TrialPlacement) else None

    def fits_beside(self, reserved: list[TrialPods], request: PlacementRequest) -> bool:
        """Say whether tasks fit when places on nodes are reserved before; nothing is placed."""
        statement = self._statement
        checkpoint, fits = statement.checkpoint, True
        for node, signature, count in reserved:
            held: HeldDevices | None = ()
            if self._devices.of[signature]:
                held = self._devices.choose_reserved(node, signature)
                fits = fits and held is not None
            statement.allocate(node, signature, on_idle=False, count=count, held=held or ())
        fits = fits and self.fits(request) is not None
        statement.roll_back(checkpoint)
        return fits

    def failure_in(
        self, request: PlacementRequest, alternative: Alternative
    ) -> PlacementFailure | None:
        """Return why tasks do not fit in one alternative, as `place` does; else place nothing."""
        checkpoint = self._statement.checkpoint
        placed = self._place_alternative(request, alternative)
        if isinstance(placed, PlacementFailure):
            return placed
        self._statement.roll_back(checkpoint)
        return None

    def reserve(self, request: PlacementRequest) -> list[tuple[int, int, int]] | None:
        """Place pods that do not exist; return task indexes, nodes and numbers if all fit."""
        placed = self._place_unchecked(request)
        if isinstance(placed, PlacementFailure):
            return None
        return [(it.tasks_index, it.node, it.pod_count) for it in placed]

    def _place_unchecked(self, request: PlacementRequest) -> list[_PlacedPods] | PlacementFailure:
        placed = self._first_placed(request, partial(self._place_alternative, request))
        assert not isinstance(placed, QuotaRefusal)  # nothing was checked
        return placed

    def _first_placed(
        self,
        request: PlacementRequest,
        attempt: Callable[[Alternative], _PlacedAlternative[T]],
        *,
        is_trial: bool = True,
    ) -> T | PlacementFailure | QuotaRefusal:
        """Try the alternatives until one is placed.

        If none is, return the first refusal, or else a failure: that of the first alternative,
        unless it was a trial. Then the pods that were placed before it are in the statement.
        """
        only = request.pinned or request.strategy.only
        if only is not None:
            placed = attempt(only)
            return placed.refusal if isinstance(placed, RefusedPlacement) else placed
        checkpoint, refusal = self._statement.checkpoint, None
        alternatives = request.strategy.alternatives(request.tasks)
        first = alternative = next(alternatives)
        while True:
            placed, refused = attempt(alternative), None
            if isinstance(placed, RefusedPlacement):
                refusal, refused = refusal or placed.refusal, placed.allocation
            elif not isinstance(placed, PlacementFailure):
                return placed
            following = _next(alternatives, refused)
            if following is None:
                break
            self._statement.roll_back(checkpoint)
            alternative = following
        if refusal is not None:
            self._statement.roll_back(checkpoint)
            return refusal
        if alternative is not first and not is_trial:
            self._statement.roll_back(checkpoint)
            placed = attempt(first)  # fails once more
        assert isinstance(placed, PlacementFailure)
        return placed

    def _place_checked(
        self, request: PlacementRequest, check: PlacementCheck | None, alternative: Alternative
    ) -> PodGroupAllocation | PlacementFailure | RefusedPlacement:
        if check is None:
            return self._allocation(request, alternative, is_pipelined=request.is_pipelined)
        checkpoint, before = self._statement.checkpoint, self.allocated_now.get(request.podgroup)
        is_pipelined = request.is_pipelined
        placed = self._allocation(request, alternative, is_pipelined=is_pipelined)
        if isinstance(placed, PlacementFailure):
            return placed
        outcome = check(placed, is_pipelined)
        if outcome is MUST_WAIT:
            self.undo(request.podgroup, checkpoint, before)
            placed = self._allocation(request, alternative, is_pipelined=True)
            if isinstance(placed, PlacementFailure):
                return placed
            outcome = check(placed, True)  # noqa: FBT003
        if outcome is None:
            return placed
        assert outcome is not MUST_WAIT  # all of them wait
        self.undo(request.podgroup, checkpoint, before)
        return RefusedPlacement(placed, outcome)

    def undo(self, podgroup: int, checkpoint: int, allocated_now: AssignedTasks | None) -> None:
        """Undo what was placed of a PodGroup since a checkpoint, and what did not wait then."""
        self._statement.roll_back(checkpoint)
        if allocated_now is not None:
            self.allocated_now[podgroup] = allocated_now
        else:
            self.allocated_now.pop(podgroup, None)

    def _allocation(
        self, request: PlacementRequest, alternative: Alternative, *, is_pipelined: bool
    ) -> PodGroupAllocation | PlacementFailure:
        placements = self._place_alternative(request, alternative)
        if isinstance(placements, PlacementFailure):
            return placements
        if is_pipelined:
            placements = [self._pipelined(placed_pods) for placed_pods in placements]
        placements = self._pipeline_together(request, placements)
        return _podgroup_allocation(
            request, placements, self.nodes.snapshot.podgroups[request.podgroup].tree
        )

    def _place_alternative(
        self, request: PlacementRequest, alternative: Alternative
    ) -> list[_PlacedPods] | PlacementFailure:
        placements: list[_PlacedPods] = []
        checkpoint = self._statement.checkpoint
        places: _UnusedPlaces | None = None  # most PodGroups have none
        is_gang = request.is_gang

        def failed(signature: int, subset: NodeSubset) -> PlacementFailure:
            placed = sum([it.pod_count for it in placements])
            given_up = tuple(_places_given_up(request, alternative))
            return PlacementFailure(signature, placed, checkpoint, given_up, subset)

        for part in alternative:
            subset_of = part.subset_of
            for i, podset_tasks in part.tasks_of(request.tasks):
                podset, pods, expected = podset_tasks
                if places is None and podset.reserved_places:
                    places = _UnusedPlaces(request.assigned)
                ranking, last = None, NONE
                for pod in pods:
                    signature = self._signature_of[pod]
                    if ranking is None or signature != last:
                        ranking = self.ranking(signature, subset_of(signature), is_gang=is_gang)
                        last = signature
                    place = None if places is None else places.next(podset)
                    node = self._node_for(ranking, place)
                    if node == NONE:
                        return failed(signature, ranking.subset)
                    placements.append(self._allocate(i, pod, node, signature))
                if expected:
                    signature = podset.expected_signature
                    ranking = self.ranking(signature, subset_of(signature), is_gang=is_gang)
                    if not self._place_expected(i, podset_tasks, ranking, placements):
                        return failed(signature, ranking.subset)
        return placements

    def _allocate(
        self, tasks_index: int, pod: int, node: int, signature: int, count: int = 1
    ) -> _PlacedPods:
        """Add pods to the statement; return them, with devices, and whether they fit into idle."""
        on_idle, held = self._resources.fits_idle(node, signature), NO_DEVICES
        if self._devices.of[signature]:
            choice = self._devices.choose(node, signature)
            assert choice is not None  # the node was ranked as one that fits
            held, are_idle = choice
            on_idle = on_idle and are_idle
        self._statement.allocate(node, signature, on_idle=on_idle, count=count, held=held)
        return _PlacedPods(tasks_index, pod, node, signature, on_idle, count, held)

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
        self, request: PlacementRequest, placements: list[_PlacedPods]
    ) -> list[_PlacedPods]:
        """Let all pods wait if one does, unless the PodGroup is satisfied without it."""
        podgroup, assigned = request.podgroup, request.assigned
        info = self.nodes.snapshot.podgroups[podgroup]
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
        now = _with_allocated_now(before, request.tasks, placements)
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
        idle = self.nodes.snapshot.nodes.idle[place.node]
        requests = self._resources.requests(place.signature)
        return any(idle[r] < 0 for r, _ in requests) or self._devices.is_waiting(place)

    def _node_for(self, ranking: NodeRanking, reserved_place: ReservedPlace | None) -> int:
        if reserved_place is not None:
            self._statement.deallocate(
                reserved_place.node, reserved_place.signature, reserved_place.held
            )
            if ranking.fits(reserved_place.node):
                return reserved_place.node
        return ranking.best()

    def _pipelined(self, placed_pods: _PlacedPods) -> _PlacedPods:
        if not placed_pods.on_idle:
            return placed_pods
        self._statement.pipeline(
            placed_pods.node, placed_pods.signature, placed_pods.pod_count, placed_pods.held
        )
        return placed_pods._replace(on_idle=False)


def _next(left: Alternatives, refused: PodGroupAllocation | None) -> Alternative | None:
    try:
        return left.send(refused)
    except StopIteration:
        return None


class _UnusedPlaces:
    """Hands out the reserved places of PodSets that no pod has taken, one for each pod."""

    def __init__(self, assigned: AssignedTasks) -> None:
        self._assigned: Final = assigned
        self._left: Final[dict[str, Iterator[ReservedPlace]]] = {}

    def next(self, podset: PodSet) -> ReservedPlace | None:
        left = self._left.get(podset.name)
        if left is None:
            left = self._left[podset.name] = iter(self._assigned.unused_places(podset))
        return next(left, None)


def _places_given_up(
    request: PlacementRequest, alternative: Alternative
) -> Iterator[tuple[int, ReservedPlace]]:
    """Yield the reserved places that pods give up, by the positions of these among all pods."""
    at, places = 0, _UnusedPlaces(request.assigned)
    for part in alternative:
        for _, podset_tasks in part.tasks_of(request.tasks):
            for _ in podset_tasks.pods:
                place = places.next(podset_tasks.podset)
                if place is not None:
                    yield at, place
                at += 1
            at += podset_tasks.expected


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
    request: PlacementRequest, placements: list[_PlacedPods], tree: SubGroupTree
) -> PodGroupAllocation:
    binds: list[PodPlacement] = []
    nominations: list[PodPlacement] = []
    reserved: dict[tuple[str, int], int] = {}
    for at, pod, node, _, on_idle, count, held in placements:
        if pod == NONE:
            key = (request.tasks[at].podset.name, node)
            reserved[key] = reserved.get(key, 0) + count
        else:
            (binds if on_idle else nominations).append(PodPlacement(pod, node, held))
    reservations = [
        Reservation(podset, node, n, ReservationCause.ANTICIPATED)
        for (podset, node), n in reserved.items()
    ]
    is_first = request.assigned is NONE_ASSIGNED and binds and not nominations
    is_start = is_first and not any(podset.running for podset in podsets_of(tree))
    return PodGroupAllocation(
        request.podgroup, tuple(binds), tuple(nominations), tuple(reservations), bool(is_start)
    )
