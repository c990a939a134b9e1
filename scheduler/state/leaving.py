"""Who is going for whom, from the moment it is decided until all are gone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from scheduler.state.cluster import Cluster
from scheduler.state.departures import OwningTrainJob, PlannedEviction
from scheduler.state.moved import with_reserved_annotations
from scheduler.state.orders import PodGroupCommands
from scheduler.state.reserved import read_reserved
from scheduler.state.roll import termination_deadline
from scheduler.state.stays import controlling_trainjob
from scheduler.state.terms import StateOptions
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED
from trainer_kai.api.resources import JOBSETS

__all__ = ["InFlightEvictions", "PlannedEvictions"]

PlannedEvictions: TypeAlias = tuple[PlannedEviction, ...]


class InFlightEvictions:
    """By the group that gets their room; what is known of it is what *cluster* says."""

    def __init__(self, cluster: Cluster, options: Callable[[], StateOptions]) -> None:
        self._cluster: Final = cluster
        self._options: Final = options
        self._by_preemptor: dict[Key, PlannedEvictions] = {}
        # Groups of which it is not known yet whether they go, and the nodes of their slots.
        self._undecided: Final[dict[Key, frozenset[str]]] = {}

    def begin(self, preemptor: Key, evictions: PlannedEvictions, now: int) -> PlannedEvictions:
        """Take note of who has to go for a group; return who exactly that is."""
        found = tuple(
            [
                with_reserved_annotations(self.with_identity(eviction), self._cluster, now)
                for eviction in evictions
            ]
        )
        if found:
            self._by_preemptor[preemptor] = (*self._by_preemptor.get(preemptor, ()), *found)
            self._undecided.update(
                {
                    group: self._reserved_nodes(group)
                    for eviction in found
                    for group in eviction.groups
                }
            )
        return found

    def with_identity(self, eviction: PlannedEviction) -> PlannedEviction:
        """Return which pods that are, and whose: whoever has their names later is another."""
        pods = self._cluster.pods
        uids = tuple([pods[pod].metadata.uid if pod in pods else "" for pod in eviction.pods])
        owners = [self.owning_trainjob(group) for group in eviction.groups]
        return eviction._replace(uids=uids, owner=next(filter(None, owners), None))

    def is_undecided(self, commands: PodGroupCommands) -> bool:
        """Say whether it is not known yet if those go whose room, or whose own, it is about."""
        nodes = {node for _, node in commands.binds}
        return commands.group in self._undecided or any(
            not nodes.isdisjoint(reserved_places) for reserved_places in self._undecided.values()
        )

    def settle(self, evictions: Iterable[PlannedEviction]) -> None:
        """Take note that it is known of some whether they go."""
        for group in (group for eviction in evictions for group in eviction.groups):
            self._undecided.pop(group, None)

    def forget(self, preemptor: Key, evictions: PlannedEvictions) -> list[Key]:
        """Let some not go for a group; return whose pods that are."""
        remaining = tuple(
            [
                eviction
                for eviction in self._by_preemptor.pop(preemptor, ())
                if eviction not in evictions
            ]
        )
        if remaining:
            self._by_preemptor[preemptor] = remaining
        self.settle(evictions)
        return [pod for eviction in evictions for pod in eviction.pods]

    def clear(self) -> None:
        """Forget everybody: others decide from now on."""
        self._by_preemptor = {}
        self._undecided.clear()

    def current(self) -> Mapping[Key, PlannedEvictions]:
        """Return who is going; forget who is gone, and who does not go although it is due.

        Room of the latter is promised to nobody any more, so that nobody waits for it.
        """
        options = self._options()
        in_flight = {
            preemptor: tuple(
                [
                    eviction
                    for eviction in evictions
                    if self._is_any_terminating(eviction.pods, options)
                ]
            )
            for preemptor, evictions in self._by_preemptor.items()
        }
        self._by_preemptor = {
            preemptor: evictions for preemptor, evictions in in_flight.items() if evictions
        }
        return dict(self._by_preemptor)

    def _reserved_nodes(self, group: Key) -> frozenset[str]:
        known = self._cluster.pod_groups.get(group)
        reserved = read_reserved(known.metadata.annotations.get(RESERVED, "")) if known else {}
        return frozenset(
            place.node
            for reserved_places in ({} if isinstance(reserved, str) else reserved).values()
            for place in reserved_places
        )

    def _is_any_terminating(self, pods: Iterable[Key], options: StateOptions) -> bool:
        """Say whether any of some pods is going, and expected to."""
        found = [self._cluster.pods[key].metadata for key in pods if key in self._cluster.pods]
        return any(
            meta.deletion_timestamp and termination_deadline(meta, options) >= options.now
            for meta in found
        )

    def owning_trainjob(self, group: Key) -> OwningTrainJob | None:
        """Return the TrainJob that a group is of, if there is one; else its pods go one by one.

        Of a JobSet that is not known, or is another of its name, the TrainJob has no name.
        """
        known = self._cluster.pod_groups.get(group)
        owners = known.metadata.owner_references if known else ()
        for owner in owners:
            if owner.kind != JOBSETS.kind:
                continue
            jobset = self._cluster.jobsets.get(Key(group.namespace, owner.name))
            if jobset is None or jobset.metadata.uid != owner.uid:
                return OwningTrainJob(Key(group.namespace, ""), "")
            job = controlling_trainjob(jobset, self._cluster.trainjobs)
            if job is not None:
                return OwningTrainJob(job.metadata.key, job.metadata.uid)
        return None
