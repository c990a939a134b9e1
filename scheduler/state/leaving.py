"""Who is going for whom, from the moment it is decided until all are gone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from scheduler.state.cluster import Cluster
from scheduler.state.departures import Departure, Owner
from scheduler.state.moved import with_holds
from scheduler.state.orders import UnitOrders
from scheduler.state.reserved import read_reserved
from scheduler.state.roll import going_until
from scheduler.state.stays import trainjob_of
from scheduler.state.terms import Terms
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED
from trainer_kai.api.resources import JOBSETS

__all__ = ["Departures", "Leaving"]

Departures: TypeAlias = tuple[Departure, ...]


class Leaving:
    """By the group that gets their room; what is known of it is what *cluster* says."""

    def __init__(self, cluster: Cluster, terms: Callable[[], Terms]) -> None:
        self._cluster: Final = cluster
        self._terms: Final = terms
        self._of: dict[Key, Departures] = {}
        # Groups of which it is not known yet whether they go, and the nodes of their slots.
        self._open: Final[dict[Key, frozenset[str]]] = {}

    def begin(self, claimant: Key, departures: Departures, now: int) -> Departures:
        """Take note of who has to go for a group; return who exactly that is."""
        found = tuple([with_holds(self.known(one), self._cluster, now) for one in departures])
        if found:
            self._of[claimant] = (*self._of.get(claimant, ()), *found)
            self._open.update({group: self._slots(group) for one in found for group in one.groups})
        return found

    def known(self, one: Departure) -> Departure:
        """Return which pods that are, and whose: whoever has their names later is another."""
        pods = self._cluster.pods
        uids = tuple([pods[pod].metadata.uid if pod in pods else "" for pod in one.pods])
        owners = [self.owner_of(group) for group in one.groups]
        return one._replace(uids=uids, owner=next(filter(None, owners), None))

    def is_open(self, orders: UnitOrders) -> bool:
        """Say whether it is not known yet if those go whose room, or whose own, it is about."""
        nodes = {node for _, node in orders.binds}
        return orders.group in self._open or any(
            not nodes.isdisjoint(slots) for slots in self._open.values()
        )

    def settle(self, departures: Iterable[Departure]) -> None:
        """Take note that it is known of some whether they go."""
        for group in (group for one in departures for group in one.groups):
            self._open.pop(group, None)

    def forget(self, claimant: Key, departures: Departures) -> list[Key]:
        """Let some not go for a group; return whose pods that are."""
        left = tuple([one for one in self._of.pop(claimant, ()) if one not in departures])
        if left:
            self._of[claimant] = left
        self.settle(departures)
        return [pod for one in departures for pod in one.pods]

    def clear(self) -> None:
        """Forget everybody: others decide from now on."""
        self._of = {}
        self._open.clear()

    def now(self) -> Mapping[Key, Departures]:
        """Return who is going; forget who is gone, and who does not go although it is due.

        Room of the latter is promised to nobody any more, so that nobody waits for it.
        """
        terms = self._terms()
        going = {
            claimant: tuple([one for one in them if self._are_going(one.pods, terms)])
            for claimant, them in self._of.items()
        }
        self._of = {claimant: them for claimant, them in going.items() if them}
        return dict(self._of)

    def _slots(self, group: Key) -> frozenset[str]:
        known = self._cluster.pod_groups.get(group)
        held = read_reserved(known.metadata.annotations.get(RESERVED, "")) if known else {}
        return frozenset(
            slot.node
            for slots in ({} if isinstance(held, str) else held).values()
            for slot in slots
        )

    def _are_going(self, pods: Iterable[Key], terms: Terms) -> bool:
        """Say whether any of some pods is going, and expected to."""
        found = [self._cluster.pods[key].metadata for key in pods if key in self._cluster.pods]
        return any(
            meta.deletion_timestamp and going_until(meta, terms) >= terms.now for meta in found
        )

    def owner_of(self, group: Key) -> Owner | None:
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
                return Owner(Key(group.namespace, ""), "")
            job = trainjob_of(jobset, self._cluster.trainjobs)
            if job is not None:
                return Owner(job.metadata.key, job.metadata.uid)
        return None
