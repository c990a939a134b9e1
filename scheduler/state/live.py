"""The cluster as it was seen, with what we did laid over it, and what a change is good for.

Told by watches, asked by the cycle; both on one event loop. What a plan was made from is frozen:
meanwhile it goes on here, and what a plan relied on and is no more is found by `moved`.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from scheduler.state.assumed import Assumed
from scheduler.state.awaited import least_pods
from scheduler.state.encoded import Encoded
from scheduler.state.leaving import Departures, Leaving
from scheduler.state.members import Members, group_of
from scheduler.state.news import (
    ANY,
    FREED,
    MORE,
    NOTHING,
    OTHERS,
    READY,
    TAKEN,
    Topics,
    help_of,
    is_ready,
    looks,
    says,
    waits,
    worse,
)
from scheduler.state.orders import UnitOrders
from scheduler.state.permits import Permit, Use
from scheduler.state.repair import Shortage, goes_on, is_lost, kept_places, lack_of
from scheduler.state.state import State
from scheduler.state.stays import is_copied, is_held, refusal, runs_again
from scheduler.state.suspended import Suspended
from scheduler.state.terms import Terms, stamp
from scheduler.state.totals import use_of
from scheduler.state.unmade import Refusals
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import EVICTED_BY, RESERVED
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.errors import InvariantError
from trainer_kai.policy.demand import Amounts
from trainer_kai.policy.evicted import is_evicted

__all__ = ["Live"]


class Live:
    """All objects, by name."""

    def __init__(self, terms: Callable[[], Terms]) -> None:
        self.assumed: Final = Assumed()
        self._state: Final = State(terms())
        self.cluster: Final = self._state.cluster  # as it is laid out for a plan
        self._shelves: Final = {id(shelf.known): shelf for shelf in self._state.shelves}
        self._terms: Final = terms
        self.scheduler_name: Final = terms().scheduler_name
        self.default_queue: Final = terms().default_queue
        self.kueue: Final = terms().kueue
        self._pods: Final[dict[Key, Pod]] = {}  # as seen, where something lies over it
        self._groups: Final[dict[Key, PodGroup]] = {}
        self._moved: set[Key] = set()
        self.leads = False
        self._short: dict[Key, None] = {}  # units that may have begun without being whole
        self._lost: dict[Key, dict[Key, Pod]] = {}  # by group: pods whose places may be kept
        self._kept: dict[Key, str] = {}  # annotations with places of pods that were lost
        self.members: Final = Members(self.cluster, self.scheduler_name)
        self.leaving: Final = Leaving(self.cluster, terms)
        self.suspended: Final = Suspended(self.cluster, self.members)
        self._least: Final[dict[Key, int]] = {}  # by group: without so many it cannot be placed
        self.refusals: Final = Refusals(self.cluster, self.members, self._least)
        self.on_group: Callable[[Key], None] | None = None  # told whose pods come, go or are placed
        self.on_uses: Callable[[AbstractSet[Use]], None] | None = None  # told what to ask
        self.on_record: Callable[[Key], None] | None = None  # told of TrainJobs that we suspended

    def pod(self, key: Key, seen: Pod | None) -> Topics:
        """Take note of a pod, or that it is gone; return whom that may help."""
        shown = self.assumed.pod(key, seen)
        if shown is seen or seen is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = seen
        before = self.cluster.pods.get(key)
        self._state.pods.tell(key, shown)
        topics = self._of_pod(key, before, shown)
        if topics - READY:
            is_evicted = bool(self.assumed.whose_eviction(key))
            if before is not None and not is_evicted and is_lost(before, shown):
                self._note_short(group_of(key, before))
                if self._may_keep_place(key, before):
                    topics = ANY  # it has to be written
            self._regroup(key, before, shown)
        return MORE if topics is ANY and self._gathers(key, shown) else topics

    def group(self, key: Key, seen: PodGroup | None) -> Topics:
        """Take note of a group, or that it is gone."""
        shown = self.assumed.group(key, seen)
        if shown is seen or seen is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = seen
        before = self.cluster.pod_groups.get(key)
        self._state.pod_groups.tell(key, shown)
        self.members.own(key, shown)
        self._of_record(before, shown)
        if says(before) == says(shown):
            return NOTHING
        if shown is None:
            self._least.pop(key, None)
        else:
            self._least[key] = least_pods(shown)
        return ANY

    def put(self, known: dict[Any, Any], key: Key, seen: Object | None) -> Topics:
        """Take note of an object of another kind: *known* is one of the tables of the cluster."""
        name = key if key.namespace else key.name
        before = known.get(name)
        shelf = self._shelves.get(id(known))  # none of what no plan is made from
        if shelf is not None:
            shelf.tell(name, seen)
        elif seen is None:
            known.pop(name, None)
            return NOTHING
        else:
            known[name] = seen
            return NOTHING
        if known is self.cluster.trainjobs:
            return self._of_trainjob(key, before, known.get(key))
        if known is self.cluster.nodes and worse(before, seen):
            self._moved.add(key)
        return help_of(before, seen)

    def refuse(self, job: Key, why: str | None) -> Topics:
        """Take note of why a TrainJob cannot be suspended and so stays, or that it can be."""
        before = self.cluster.refused.get(job)
        self._state.refused.tell(job, why)
        if why is not None:
            self._let_stay(self.members.placed_of(job))
        return NOTHING if before == why else ANY

    def permit(self, pair: Key, permit: Permit | None) -> Topics:
        """Take note of what is known of a namespace and a queue."""
        before = self.cluster.permits.get(pair)
        self._state.permits.tell(pair, permit)
        return NOTHING if before == permit else ANY

    def lead(self) -> None:
        """Begin to act; whoever led before may have left units short, so all are looked at."""
        self.leads = True
        for job in [*self.cluster.refused]:
            self._state.refused.tell(job, None)  # whoever led before would have let it be chosen
        self._short = dict.fromkeys(self.cluster.pod_groups)
        self._see_off()

    def follow(self, now_s: float) -> None:
        """Act no longer."""
        self.leads = False
        self._lost, self._kept = {}, {}
        self.assumed.leave(now_s)
        self.leaving.clear()
        self.on_group = self.on_record = self.on_uses = None

    def snapshot(self) -> Encoded:
        """Return what a plan is made from; `moved` counts from now on."""
        self._keep_places()
        self._moved = set()
        now = self._terms().now
        self.refusals.look(now)
        encoded = self._state.snapshot(now)
        if self.on_uses is not None:
            self.on_uses(self._state.uses)
        return encoded

    @property
    def ending(self) -> list[Pod]:
        """Return the pods of our scheduler that were going when the last snapshot was made."""
        return self._state.ending

    def check(self) -> None:
        """Raise `InvariantError` if a process that starts now would know something else."""
        self._state.check(self._terms().now)
        found = ((key, group_of(key, pod)) for key, pod in self.cluster.pods.items())
        if {it for it in found if it[1]} != self.members.pairs:
            raise InvariantError("the members of groups")
        if self._least != {it: least_pods(group) for it, group in self.cluster.pod_groups.items()}:
            raise InvariantError("how many pods groups need")

    def moved(self, orders: UnitOrders) -> bool:
        """Say whether something that these rely on has changed since the last snapshot."""
        return any(
            it.pod in self._moved or Key("", it.node) in self._moved
            for it in (*orders.binds, *orders.nominations)
        ) or any(pod in self._moved for one in orders.departures for pod in one.pods)

    def assume(self, orders: UnitOrders) -> UnitOrders:
        """Take what is about to be done as done; return it, with whom exactly it is done to."""
        if orders.binds and orders.group in self.cluster.pod_groups:
            self._short[orders.group] = None
        for pod, node in orders.binds:
            self.assumed.bind(pod, self.cluster.pods[pod].metadata, node)
            self._lay_pod(pod)
        for pod, node in orders.nominations:
            self.assumed.promise(pod, self.cluster.pods[pod].metadata.uid, node)
            self._lay_pod(pod)
        text = orders.hold if orders.let_go is None else orders.let_go
        if text is not None:
            self._lay_hold(orders.group, text)
        uids = tuple([self.cluster.pods[it.pod].metadata.uid for it in orders.nominations])
        now = self._terms().now
        going, at = self.leaving.begin(orders.group, orders.departures, now), stamp(now)
        for one in going:
            for name, text in one.holds:
                self._lay_hold(name, text)
            for pod, uid in zip(one.pods, one.uids, strict=True):
                self.assumed.evict(pod, uid, at)
                self._lay_pod(pod)
        return orders._replace(departures=going, uids=uids)

    def staying(self, job: Key) -> list[Key]:
        """Return the pods of a TrainJob on nodes that were not seen to go, whatever we did."""
        pods, seen = self.cluster.pods, self._pods
        placed = self.members.placed_of(job)
        return [it for it in placed if not seen.get(it, pods[it]).metadata.deletion_timestamp]

    def forget_departures(self, orders: UnitOrders, some: Departures) -> None:
        """Take back that some go for a unit."""
        self._let_stay(self.leaving.forget(orders.group, some))
        self.let_place_go(some)

    def let_place_go(self, some: Departures) -> None:
        """Take back that some have places elsewhere."""
        for group in (group for one in some for group, _ in one.holds):
            self.forget_hold(group)

    def _let_stay(self, pods: Iterable[Key]) -> None:
        for pod in pods:
            self.assumed.forget_eviction(pod)
            self._lay_pod(pod)

    def forget_bind(self, pod: Key) -> None:
        """Take back that a pod is where we wanted it."""
        self.assumed.forget_bind(pod)
        self._lay_pod(pod)

    def forget_promise(self, pod: Key) -> None:
        """Take back that a pod is promised a node."""
        self.assumed.forget_promise(pod)
        self._lay_pod(pod)

    def hold(self, group: Key, text: str | None) -> None:
        """Take back that slots were let go; *text* is what was written before, if anything was."""
        if text is None or group not in self.cluster.pod_groups:
            self.forget_hold(group)
        else:
            self._lay_hold(group, text)

    def _lay_hold(self, key: Key, text: str) -> None:
        group = self.cluster.pod_groups.get(key)
        if group is not None:
            self.assumed.hold(key, group.metadata.uid, text)
            self._lay_group(key)

    def held(self, group: Key, until_s: float) -> None:
        """Wait for what was written of a group to be seen, if it is not yet."""
        self.assumed.done(group, until_s)
        self._lay_group(group)

    def forget_hold(self, group: Key) -> None:
        """Take back that a group holds what we wanted."""
        self.assumed.forget_hold(group)
        self._lay_group(group)

    def record(self, group: PodGroup, text: str | None, until_s: float) -> None:
        """Take the record of an eviction as written, or as removed."""
        key = group.metadata.key
        if text is None:
            self.assumed.forget_record(key)
        else:
            self.assumed.record(key, group.metadata.uid, text, until_s)
        self._lay_group(key)

    def expire(self, now_s: float) -> list[Key]:
        """Forget what was done and is not seen; return of which objects."""
        pods, groups = self.assumed.overdue(now_s)
        for lay, keys in ((self._lay_pod, pods), (self._lay_group, groups)):
            for key in keys:
                lay(key)
        if pods:
            self._see_off()
        return [*pods, *groups]

    def short_of_pods(self) -> list[Key]:
        """Return the groups that may have begun without being whole."""
        return [*self._short]

    def is_whole(self, group: Key) -> None:
        """Take note that a group is whole, or not begun."""
        self._short.pop(group, None)

    def shortage(self, group: Key) -> Shortage | None:
        """Return what a group lacks; None if it is whole, has not begun, or comes to its end."""
        found = None if self._is_closing(group.namespace) else self.cluster.pod_groups.get(group)
        members = [self.cluster.pods[key] for key in self.members.of(group)]
        return lack_of(found, members, self.suspended.jobset_of(found)) if found else None

    def _of_trainjob(self, key: Key, before: TrainJob | None, now: TrainJob | None) -> Topics:
        """Return whom a TrainJob helps; of another of its name nothing is known yet."""
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._state.refused.tell(key, None)
        groups = self.suspended.named(key)
        if now is not None and (is_copied(now) or any(is_evicted(now, it) for it in groups)):
            self._tell_of_record(key)
        for it in groups:
            self._follow(it, was=_is_held(before, it), is_now=_is_held(now, it))
        told = [_says(it, groups, kueue=self.kueue) for it in (before, now)]
        return NOTHING if told[0] == told[1] else ANY

    def _of_record(self, before: PodGroup | None, now: PodGroup | None) -> None:
        """Take note of what a group says of an eviction, if that is another thing than before."""
        told = [it.metadata.annotations.get(EVICTED_BY) if it else None for it in (before, now)]
        group = now or before
        job = self.suspended.trainjob_of(group) if group and told[0] != told[1] else None
        if group is None or job is None:
            return
        self._tell_of_record(job.metadata.key)
        self._follow(group, was=_is_held(job, before), is_now=_is_held(job, now))

    def _tell_of_record(self, job: Key) -> None:
        if self.on_record is not None:
            self.on_record(job)

    def _follow(self, group: PodGroup, *, was: bool, is_now: bool) -> None:
        """Let the pods of a group be going while it says that its TrainJob is evicted."""
        if is_now:
            self._go(group)
        elif was:
            self._let_stay(self.members.placed(group.metadata.key))

    def _see_off(self) -> None:
        """Let those be going whom we suspended, however long it takes until they are seen to go."""
        for group in self.suspended.groups():
            self._go(group)

    def _go(self, group: PodGroup) -> None:
        """Take the pods of a group whose TrainJob we suspended for going, until it is resumed."""
        for key in self.members.placed(group.metadata.key) if self.leads else ():
            meta = self.cluster.pods[key].metadata
            if not meta.deletion_timestamp:
                self.assumed.evict(key, meta.uid, stamp(self._terms().now))
                self._lay_pod(key)

    def kept_places(self) -> list[UnitOrders]:
        """Return what is to be written of places that are kept since this was asked last."""
        self._keep_places()
        kept, self._kept = self._kept, {}
        return [UnitOrders(group, text, (), (), None) for group, text in kept.items()]

    def _may_keep_place(self, key: Key, lost: Pod) -> bool:
        """Take note of a lost pod, if another one may want its place."""
        name = group_of(key, lost)
        group = self.cluster.pod_groups.get(name) if name else None
        if name is None or group is None or not self.leads or not self.members.is_ours(lost):
            return False
        if self._is_closing(key.namespace) or not goes_on(group, self.suspended.jobset_of(group)):
            return False
        self._lost.setdefault(name, {})[key] = lost
        return True

    def _keep_places(self) -> None:
        """Keep the places of the pods that were lost of late, if others will want them."""
        found, self._lost = self._lost, {}
        for name, lost in found.items():
            group = self.cluster.pod_groups.get(name)
            if group is None:
                continue
            others = (self.cluster.pods[it] for it in self.members.of(name) - lost.keys())
            text = kept_places(lost.values(), others, group, self.suspended.jobset_of(group))
            if text is not None:
                self._kept[name] = text
                self._lay_hold(name, text)

    def _is_closing(self, namespace: str) -> bool:
        """Say whether a namespace is deleted: nothing is made anew in there."""
        found = self.cluster.namespaces.get(namespace)
        return found is not None and bool(found.metadata.deletion_timestamp)

    def use_of(self, group: Key) -> tuple[Amounts, Amounts]:
        """Return what the pods of a group have, and what they ask for: that as well."""
        return use_of(self.cluster.pods[key] for key in self.members.of(group))

    def keep_again(self, group: Key, text: str) -> None:
        """Have places that could not be written yet written later."""
        self._kept.setdefault(group, text)

    def _gathers(self, key: Key, pod: Pod | None) -> bool:
        """Say whether a pod waits for others of its group, or for the group, that do not exist."""
        name = group_of(key, pod) if waits(pod) else None
        if name is None:
            return False
        group = self.cluster.pod_groups.get(name)
        if group is None:
            return True
        if group.metadata.annotations.get(RESERVED):
            return False  # its place may be kept: it need not wait for the others
        return len(self.members.of(name)) < self._least[name]

    def _note_short(self, group: Key | None) -> None:
        if group is not None:
            self._short[group] = None

    def _regroup(self, key: Key, before: Pod | None, now: Pod | None) -> None:
        old, new = group_of(key, before), group_of(key, now)
        self.members.move(key, old, new)
        if self.on_group is not None:
            for group in {old, new}:
                if group is not None:
                    self.on_group(group)

    def _lay_pod(self, key: Key) -> None:
        self.pod(key, self._pods.get(key) or self.cluster.pods.get(key))

    def _lay_group(self, key: Key) -> None:
        self.group(key, self._groups.get(key) or self.cluster.pod_groups.get(key))

    def _of_pod(self, key: Key, before: Pod | None, now: Pod | None) -> Topics:
        old, new = looks(before), looks(now)
        if old == new:
            was, is_ = is_ready(before), is_ready(now)
            return NOTHING if was == is_ else READY
        if old is None or new is None or old[:2] != new[:2] or old.is_going != new.is_going:
            self._moved.add(key)
        if new is not None and new.node and (old is None or old.node != new.node):
            self._moved.add(Key("", new.node))  # somebody has taken room there
        if old is not None and old.node and not waits(now):
            return FREED
        pod = before if now is None else now
        if pod is not None and not self.members.is_ours(pod):
            return TAKEN if new is not None and new.node else OTHERS
        return ANY


def _is_held(job: TrainJob | None, group: PodGroup | None) -> bool:
    return job is not None and group is not None and is_held(job, group)


def _says(job: TrainJob | None, groups: Iterable[PodGroup], *, kueue: bool) -> object:
    """Return what of a TrainJob a plan can tell apart; one that is gone keeps nothing back."""
    again = [job is None or runs_again(job, it) for it in groups]
    return job and refusal(job, kueue=kueue), again
