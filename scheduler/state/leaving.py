"""Who is going for whom, from the moment it is decided until all are gone."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from scheduler.state.cluster import Cluster
from scheduler.state.departures import Departure
from trainer_kai.api.meta import Key

__all__ = ["Departures", "Leaving"]

Departures: TypeAlias = tuple[Departure, ...]


class Leaving:
    """By the group that gets their room; what is known of it is what *cluster* says."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster
        self._of: dict[Key, Departures] = {}

    def begin(self, claimant: Key, departures: Departures) -> None:
        """Take note of who has to go for a group."""
        if departures:
            self._of[claimant] = departures

    def forget(self, claimant: Key) -> list[Key]:
        """Let nobody go for a group; return whose pods that are."""
        return [pod for one in self._of.pop(claimant, ()) for pod in one.pods]

    def now(self) -> Mapping[Key, Departures]:
        """Return who is going, and forget who is gone."""
        going = {
            claimant: tuple([one for one in them if any(map(self._is_going, one.pods))])
            for claimant, them in self._of.items()
        }
        self._of = {claimant: them for claimant, them in going.items() if them}
        return dict(self._of)

    def pods_of(self, job: Key) -> list[Key]:
        """Return the pods of a TrainJob that are to go."""
        departures = [one for them in self._of.values() for one in them]
        mine = [one for one in departures if any(self._is_of(it, job) for it in one.groups)]
        return [pod for one in mine for pod in one.pods]

    def _is_going(self, key: Key) -> bool:
        pod = self._cluster.pods.get(key)
        return pod is not None and bool(pod.metadata.deletion_timestamp)

    def _is_of(self, group: Key, job: Key) -> bool:
        """Say whether a group is of a TrainJob, whose JobSet is called like it."""
        known = self._cluster.pod_groups.get(group)
        owners = known.metadata.owner_references if known else ()
        return group.namespace == job.namespace and any(it.name == job.name for it in owners)
