"""The attempts of a plan: what each pending PodGroup takes next, and what it was given before."""

from typing import Final, NamedTuple

from scheduler.core.gang import (
    NONE_ASSIGNED,
    AssignedTasks,
    ElasticTasks,
    SignatureRuns,
    Tasks,
    can_be_satisfied,
    is_elastic,
    min_available_state,
)
from scheduler.core.model.podgroup import PodGroupInfo, PodSet, podsets_of
from scheduler.core.model.rejections import (
    ClusterEvent,
    IncompletePodSet,
    MissingPods,
    PreFilterFailure,
    Rejection,
    prefilter_rejection,
)
from scheduler.core.model.resources import Amounts
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage, charged
from scheduler.core.nodes.capacity import EmptyClusterFit
from scheduler.core.nodes.nominated import NominatedPodGroups
from scheduler.core.nodes.placement import PlacementRequest, Placer
from scheduler.core.nodes.strategies.strategy import PlacementStrategy, RequestKey
from scheduler.core.queues.order import PodGroupKey
from trainer_kai.api.reasons import UnschedulableReason


class PlacementAttempt(NamedTuple):
    tasks: Tasks
    amounts: Amounts
    signatures: SignatureRuns
    key: PodGroupKey
    least_amounts: Amounts  # on the nodes where the least is charged, if that depends on them
    strategy: PlacementStrategy
    request_key: RequestKey  # of attempts with equal keys all fit, or none

    @property
    def depends_on_nodes(self) -> bool:
        return self.least_amounts != self.amounts

    @property
    def fits_empty_cluster(self) -> bool:
        """Say whether it is within all limits and fits if no pods are on the nodes."""
        return not self.key[0]


class Attempts(dict[int, PlacementAttempt]):
    """The next attempt of each pending PodGroup, and what was placed of it before."""

    def __init__(
        self, policies: Policies, placer: Placer, usage: Usage, nominated: NominatedPodGroups
    ) -> None:
        super().__init__()
        self._snapshot: Final = placer.nodes.snapshot
        self._charges: Final = placer.nodes.charges
        self._strategy_of: Final = placer.nodes.strategy_of
        self._policies: Final = policies
        self._placer: Final = placer
        self._empty_cluster_fit: Final = EmptyClusterFit(placer, usage)
        self._nominated: Final = nominated
        self._assigned: Final[dict[int, AssignedTasks]] = {}
        self._elastic: Final[dict[int, ElasticTasks]] = {}
        self._pending: Final[dict[int, int]] = {}  # by PodGroup, pods that are not placed

    def requested(self, row: int) -> Amounts:
        return self[row].amounts

    def assigned(self, row: int) -> AssignedTasks:
        return self._assigned.get(row, NONE_ASSIGNED)

    def has_reserved_places(self, row: int) -> bool:
        """Say whether a PodGroup would use reserved places, which no other has."""
        for podset_tasks in self[row].tasks:
            if podset_tasks.podset.reserved_places and self.assigned(row).unused_places(
                podset_tasks.podset
            ):
                return True
        return False

    def request(self, row: int, *, is_pipelined: bool = False) -> PlacementRequest:
        attempt, assigned = self[row], self.assigned(row)
        return PlacementRequest(attempt.tasks, assigned, attempt.strategy, row, is_pipelined)

    def add(self, row: int, tasks: Tasks) -> None:
        tree = self._snapshot.podgroups[row].tree
        self[row] = self._attempt(row, tasks, NONE_ASSIGNED, min_available_state(tree))
        self._pending[row] = sum([len(podset.pending) for podset in podsets_of(tree)])

    def count_pending(self, row: int) -> int:
        tasks = self[row].tasks
        self._pending[row] -= sum([len(podset_tasks.pods) for podset_tasks in tasks])
        return self._pending[row]

    def advance(self, row: int) -> Rejection | None:
        """Prepare the attempt after one that was placed; return why there is none."""
        podgroup = self._snapshot.podgroups[row]
        assigned = self._assigned.setdefault(row, AssignedTasks())
        was_elastic = row in self._elastic
        assigned.add(self[row].tasks)
        elastic_tasks = self._elastic.setdefault(row, ElasticTasks(podgroup.tree))
        more = elastic_tasks.next(assigned)
        if not more:
            return missing_pods(row, podgroup)
        failure = elastic_failure(podgroup, more, assigned)
        if failure is not None:
            return prefilter_rejection(row, failure)
        # Elastic pods can be spared.
        available_state = 1 if was_elastic else min_available_state(podgroup.tree, assigned)
        self[row] = self._attempt(row, more, assigned, available_state)
        return None

    def _attempt(
        self, row: int, tasks: Tasks, assigned: AssignedTasks, available_state: int
    ) -> PlacementAttempt:
        signatures = self._placer.signature_runs(tasks)
        amounts = self._amounts(tasks, signatures, assigned)
        least = amounts
        if self._charges.depend_on_nodes:
            least = self._charges.least(amounts, signatures)
        strategy = self._strategy_of(row, tasks, signatures)
        key = podgroup_key(self._snapshot, self._policies, row, available_state)
        if self._nominated:  # before others, but not before a larger priority
            first = min(1, len(key) - 1)
            key = (*key[:first], not self._nominated.all_nominated(tasks), *key[first:])
        fits_empty_cluster, request_key = self._empty_cluster_fit.fits_empty_cluster(
            self._snapshot.podgroups[row].queue, least, (signatures, strategy.key), strategy
        )
        key = (not fits_empty_cluster, *key)
        return PlacementAttempt(tasks, amounts, signatures, key, least, strategy, request_key)

    def _amounts(self, tasks: Tasks, requested: SignatureRuns, assigned: AssignedTasks) -> Amounts:
        """Return what tasks add to the usage of their queue: used reserved places come off."""
        signatures = self._snapshot.signatures
        cpu, memory, gpu = charged(signatures, requested)
        for podset, pods, _ in tasks:
            if podset.reserved_places:
                for reserved_place in assigned.unused_places(podset)[: len(pods)]:
                    counted = signatures[reserved_place.signature].queue_request
                    cpu, memory, gpu = cpu - counted[0], memory - counted[1], gpu - counted[2]
        return cpu, memory, gpu


def podgroup_key(
    snapshot: Snapshot, policies: Policies, row: int, available_state: int
) -> PodGroupKey:
    podgroup = snapshot.podgroups[row]
    return (*[of(podgroup, available_state) for of in policies.podgroup_order], row)


def elastic_failure(
    podgroup: PodGroupInfo, tasks: Tasks, assigned: AssignedTasks = NONE_ASSIGNED
) -> PreFilterFailure | None:
    return podgroup.elastic_failure if is_elastic(podgroup.tree, tasks, assigned) else None


def missing_pods(row: int, podgroup: PodGroupInfo) -> Rejection:
    missing = tuple(
        IncompletePodSet(podset.name, _existing_pods(podset), podset.minimum, podset.gated)
        for podset in podsets_of(podgroup.tree)
        if not can_be_satisfied(podset)
    )
    return Rejection(
        row,
        UnschedulableReason.PODS_MISSING,
        MissingPods(missing),
        is_resolvable=False,
        # A new pod of it is retried on `ANY`; a pod that ends may be of an older attempt.
        retry_on=ClusterEvent.RESOURCES_FREED,
    )


def _existing_pods(podset: PodSet) -> int:
    return podset.running + podset.succeeded + len(podset.pending) + podset.gated
