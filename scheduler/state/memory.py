"""All that is worked out of objects, and how it is brought up to date.

What is told goes one way: nodes, pods and their kin, gangs, slots, codes, nodes with what is on
them, units. Each step says what it has touched, and the next looks only at that.
"""

from collections.abc import Iterable, Iterator, KeysView, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.chunks import is_satisfied
from scheduler.core.model import NONE, Bools, Ints, Snapshot
from scheduler.state.bars import Bars
from scheduler.state.basis import Versions, basis_of
from scheduler.state.budgets import BudgetRows
from scheduler.state.charges import QueueCharges, goings
from scheduler.state.cluster import Cluster
from scheduler.state.codes import Codes
from scheduler.state.crowds import Crowds
from scheduler.state.dues import Dues
from scheduler.state.encoded import Encoded
from scheduler.state.gang import Gang
from scheduler.state.gangs import Gangs
from scheduler.state.ground import Ground
from scheduler.state.holdings import Holdings
from scheduler.state.kin import Kin
from scheduler.state.kins import Kins
from scheduler.state.nodes import NodeRows
from scheduler.state.permits import Pairs, Permits, Use
from scheduler.state.queues import QueueRows
from scheduler.state.roll import RELEASING, STUCK, THERE, WAITING, Roll
from scheduler.state.standing import QuotaScopes, Standings
from scheduler.state.stays import Stays
from scheduler.state.terms import Stray, Terms
from scheduler.state.units import Units
from scheduler.state.users import Users
from scheduler.state.view import View
from trainer_kai.api.meta import Key
from trainer_kai.api.names import QUEUE
from trainer_kai.api.node import Node
from trainer_kai.api.pod import Pod
from trainer_kai.api.quota import ResourceQuota

__all__ = ["Memory", "News"]


class News(NamedTuple):
    """What has changed since the last time: None is gone."""

    nodes: Mapping[str, Node | None]
    pods: Mapping[Key, Pod | None]
    pod_groups: Iterable[Key]
    jobsets: Iterable[Key]
    trainjobs: Iterable[Key]  # or what became of our wish to suspend them
    quotas: Mapping[Key, ResourceQuota | None]
    permits: AbstractSet[Key]  # namespaces and queues of which something else is known now
    has_queues: bool
    has_priority_classes: bool
    has_namespaces: bool
    has_claims: bool  # or volumes or classes
    has_budgets: bool


class Memory:
    """Of one state."""

    def __init__(self, cluster: Cluster, terms: Terms) -> None:
        self._cluster: Final = cluster
        self._terms: Final = terms
        self._nodes: Final = NodeRows()
        self._kins: Final = Kins(terms)
        self._roll: Final = Roll(self._kins, self._nodes, terms)
        self._gangs: Final = Gangs(cluster, self._roll, terms)
        self._holdings: Final = Holdings(self._roll, self._nodes)
        self._users: Final = Users(cluster, self._roll)
        self._stays: Final = Stays(cluster.trainjobs, cluster.refused, kueue=terms.kueue)
        self._permits: Final = Permits(
            cluster.permits, terms.unannotated, are_needed=terms.needs_permission
        )
        self._pairs: Final = Pairs()
        self._units: Final = Units(terms)
        self._dues: Final = Dues()
        self._budgets: Final = BudgetRows()
        self._strays: Final[dict[Key, list[Stray]]] = {}
        self._queues = QueueRows({})
        self._quotas: Final = QuotaScopes()
        self._standings = Standings({}, self._quotas, cluster.pod_groups, terms)
        self._versions = Versions()
        self._claims = 0  # how often claims, volumes or classes have changed
        self._heads: Ints = self._roll.heads
        self._crowds: Final = Crowds(self._roll)
        basis = basis_of(self._kins, self._crowds.heard, self._nodes, self._versions)
        self._codes = Codes(basis, self._nodes, cluster, self._kins, terms.gpu_resources)
        self._ground = Ground(self._codes, self._nodes, self._roll)

    @property
    def is_sparse(self) -> bool:
        """Say whether it is made for many more pods than there are."""
        return self._roll.is_sparse

    @property
    def uses(self) -> KeysView[Use]:
        """Return the namespaces and queues that units are of, unless the queue says it is open."""
        return self._pairs.used

    @property
    def ending(self) -> list[Pod]:
        """Return the pods of our scheduler that are going."""
        return self._roll.ending

    def read(self, news: News, now: int) -> None:
        """Take what has changed."""
        again = self._read_rules(news) | self._pairs.among(news.permits)
        self._read_pods(news, now)
        self._gangs.begin(news.trainjobs, now)
        self._gangs.hear(self._roll.touched, news.pod_groups, news.jobsets)
        if self._nodes.renumbered is not None:
            self._gangs.touch(self._promised())
        if self._nodes.has_faults_changed:
            self._gangs.touch(tuple(self._holdings.texts))
        self._heads = self._roll.heads
        self._gangs.count(self._heads)
        rows = self._roll.touched_nodes | self._nodes.touched
        for key in self._gangs.changed:
            gang = self._gangs.find(key)
            rows |= self._holdings.read(key, gang)
            self._users.expect(key, gang, self._holdings)
        again |= self._read_codes(news, rows)
        if news.has_budgets:
            self._budgets.read(self._cluster.budgets)
        self._read_units(again)

    def encoded(self, now: int) -> Encoded:
        """Return what is so now."""
        view, codes = self._view, self._codes
        units, names = self._units.table()
        pods = self._units.pods(view)
        counted = codes.asks.counted
        charges = QueueCharges(len(self._queues.names), self._roll, self._heads, counted)
        self._dues.charge(charges)
        held = self._holdings.at_nodes()
        snapshot = Snapshot(
            axes=codes.asks.columns.axes,
            nodes=self._ground.table(),
            devices=self._ground.devices.table(),
            neighbours=self._ground.neighbours(self._users.placed(held)),
            queues=replace(
                self._queues.table(charges.allocated, charges.fixed, charges.requested),
                going=goings(self._roll, counted),
            ),
            shapes=codes.shapes.table(),
            pods=pods,
            units=units,
            total=self._ground.total(),
            now=now,
            budgets=self._budgets.table(self._roll, self._heads),
        )
        if codes.shapes.are_mostly_unused(pods.shape):
            self._versions = self._versions._replace(shapes=self._versions.shapes + 1)
        texts = self._holdings.texts
        rows = enumerate(names) if texts else ()
        return Encoded(
            snapshot=snapshot,
            pods=tuple(self._roll.keys),
            units=names,
            strays=tuple(self._all_strays()),
            reserved={row: texts[key] for row, key in rows if key in texts},
            selectors=codes.neighbours.selectors,
            ports=codes.ports.known,
            claims=self._users.claims,
        )

    @property
    def _view(self) -> View:
        return View(
            roll=self._roll,
            heads=self._heads,
            gangs=self._gangs,
            holdings=self._holdings,
            standings=self._standings,
            queues=self._queues,
            codes=self._codes,
            stays=self._stays,
            permits=self._permits,
        )

    def _read_pods(self, news: News, now: int) -> None:
        nodes, roll = self._nodes, self._roll
        nodes.read(news.nodes)
        roll.begin()
        if nodes.renumbered is not None:
            roll.renumber(nodes.renumbered)
        roll.read(news.pods)
        changed = self._kins.by_index ^ self._kins.asks_for_index
        if changed:  # then others are alike in those namespaces
            self._kins.by_index = self._kins.asks_for_index
            pods = self._cluster.pods.items()
            roll.read({key: pod for key, pod in pods if key.namespace in changed})
        roll.pass_time(now)

    def _read_rules(self, news: News) -> set[Key | int]:
        """Take queues, priority classes, quotas; return the gangs and slots that they concern."""
        before = self._queues
        if news.has_queues and not before.are_of(self._cluster.queues):
            self._queues = QueueRows(self._cluster.queues)
        touched = self._quotas.read(news.quotas)
        if news.has_priority_classes or touched:
            classes = dict(self._cluster.priority_classes)
            groups = self._cluster.pod_groups
            self._standings = Standings(classes, self._quotas, groups, self._terms)
        if news.has_priority_classes:
            return {*self._gangs.by_key, *self._alone()}
        return self._in_namespaces(touched) | self._in_queues(before)

    def _in_namespaces(self, touched: set[str]) -> set[Key | int]:
        """Return the gangs and slots of some namespaces."""
        if not touched:
            return set()
        keys, gangs, alone = self._roll.keys, self._gangs.by_key, self._alone()
        return {
            *(key for key in gangs if key.namespace in touched),
            *(slot for slot in alone if keys[slot].namespace in touched),
        }

    def _in_queues(self, before: QueueRows) -> set[Key | int]:
        """Return the gangs and slots whose queue is another one now."""
        if self._queues is before:
            return set()
        gangs, alone = self._gangs.by_key, self._alone()
        kins, standings, after = self._kins, self._standings, self._queues
        queues_of: dict[Key | int, set[str]] = {
            key: self._queues_of(gang) for key, gang in gangs.items()
        }
        for slot in alone:
            queues_of[slot] = {standings.of_alone(kins[int(self._roll.kin[slot])]).queue}
        moved = {
            name
            for name in set[str]().union(*queues_of.values())
            if before.at(name) != after.at(name)
            or before.may_move(name) != after.may_move(name)
            or before.access(name) != after.access(name)
        }
        lost = {key for key, gang in gangs.items() if gang.group is None}  # in one of two queues
        return {of for of, names in queues_of.items() if names & moved} | lost

    def _read_codes(self, news: News, rows: set[int]) -> set[Key | int]:
        """Bring codes up to date, and nodes; return whose units must be written in others."""
        if news.has_namespaces:
            self._versions = self._versions._replace(namespaces=self._versions.namespaces + 1)
        if news.has_claims:
            self._claims += 1
        again: set[Key | int] = set()
        moved = self._crowds.read(*self._present())
        again |= self._having(moved)
        if self._kins.is_foreseen[moved].any():
            again |= self._having_later()
        basis = basis_of(self._kins, self._crowds.heard, self._nodes, self._versions)
        claims = self._claims, self._users.shared(self._heads, self._claims)
        held = self._holdings.at_nodes()
        if basis != self._codes.basis:
            gpus = self._terms.gpu_resources
            self._codes = Codes(basis, self._nodes, self._cluster, self._kins, gpus)
            self._ground = Ground(self._codes, self._nodes, self._roll)
            rows = set(range(len(self._nodes)))
            again |= self._having_later()
            again.update(self._holdings.by_gang)
        else:
            self._codes.read_kins()
            self._codes.forget(moved)
            self._ground.read_capacity(self._nodes.touched)
        if claims != self._codes.known_claims:
            self._codes.read_claims(self._cluster, *claims)
            again |= self._having(np.flatnonzero(self._kins.has_volumes).tolist())
            again.update(self._users.awaiting)
        self._ground.read(rows - {NONE}, held)
        return again

    def _present(self) -> tuple[Bools, Bools]:
        """Return the kin that lie, want to or are of gangs that may keep room, and those that lie.

        A pod on its own that is gated wants to be somewhere as well.
        """
        kins, heads = self._kins, self._heads
        size = len(heads)
        lying: Bools = np.bincount(self._roll.kin[self._roll.node != NONE], minlength=size) > 0
        wanting = (kins.is_ours[:size] & (heads[:, WAITING] > 0)) | kins.is_foreseen[:size]
        alone = kins.is_alone[:size] & heads[:, : THERE + 1].any(axis=1)
        return lying | wanting | alone | self._gangs.is_listed[kins.gang[:size]], lying

    def _having_later(self) -> set[Key | int]:
        """Return the gangs that expect pods."""
        return {key for key, gang in self._gangs.by_key.items() if gang.later}

    def _having(self, numbers: Iterable[int]) -> set[Key | int]:
        """Return the gangs, and the slots of pods on their own, of some kin."""
        found: set[Key | int] = set()
        for number in numbers:
            kin = self._kins[number]
            found.update(kin.slots if kin.gang is None else (kin.gang,))
        return found

    def _read_units(self, again: set[Key | int]) -> None:
        view = self._view
        bars = Bars(view)
        keys = dict.fromkeys(of for of in again if not isinstance(of, int))
        refused: list[int] = []  # their queue is that of the group
        for key in self._gangs.changed | keys:
            gang = self._gangs.find(key)
            self._strays.pop(key, None)
            if gang is None:
                self._units.drop(key)
                self._dues.drop(key)
                self._pairs.put(key)
                continue
            self._pairs.put(key, *self._uses_of(gang))
            bar, growth = bars.of_gang(gang), bars.of_growth(gang)
            unit = self._units.read_gang(view, gang, bar, growth)
            has_all = growth is not None and unit is not None and is_satisfied(unit.tree)
            self._dues.read(view, gang, growth if has_all else bar)
            if gang.refused or gang.warnings:
                self._strays[key] = [*gang.strays(self._is_waiting)]
            refused += [slot for kin in gang.refused for slot in kin.slots]
        slots = [of for of in again if isinstance(of, int)] + refused
        self._read_alone(view, bars, slots + self._gangs.strayed)

    def _read_alone(self, view: View, bars: Bars, again: list[int]) -> None:
        """Make the units of pods on their own, and say what these charge.

        A pod that runs without a place in the group that it names is one as well.
        """
        roll, kins = self._roll, self._kins
        slots = np.unique(np.array(self._roll.touched_slots + again, dtype=np.int64))
        numbers, states = roll.kin[slots], roll.state[slots]
        is_own = kins.is_alone[numbers] | kins.is_stray[numbers]
        is_unit = (kins.is_alone[numbers] & (states <= THERE)) | (is_own & (states == THERE))
        for slot in self._units.among(slots[~is_unit]):
            self._units.drop(slot)
            self._pairs.put(slot)
        for slot in slots[is_unit].tolist():
            kin, waits = kins[int(roll.kin[slot])], roll.state[slot] == WAITING
            self._pairs.put(slot, self._use(kin.namespace, self._standings.of_alone(kin).queue))
            bar = bars.of_alone(kin, f"pod {roll.keys[slot].name}", waits=bool(waits))
            self._units.read_pod(view, slot, bar)
        charged = is_own & (states <= STUCK)  # also of pods that are going, and no unit any more
        for kin in dict.fromkeys(kins[number] for number in numbers[charged].tolist()):
            if kins.is_stray[kin.number]:
                self._dues.read_stray(view, kin)
                continue
            bar = bars.of_alone(kin, "", waits=self._is_waiting(kin))
            self._dues.read_alone(view, kin, bar)

    def _alone(self) -> list[int]:
        """Return the slots of pods on their own, and of strays, that charge their queues."""
        roll = self._roll
        is_own = self._kins.is_alone[roll.kin] | self._kins.is_stray[roll.kin]
        is_there = is_own & (roll.state <= STUCK)
        found: list[int] = np.flatnonzero(is_there).tolist()
        return found

    def _uses_of(self, gang: Gang) -> Iterator[Use | None]:
        """Yield what is to be asked: also of queues that pods name beside that of their group."""
        if gang.group is None or not (gang.is_listed or self._is_ending(gang)):
            return
        for queue in self._queues_of(gang):
            yield self._use(gang.key.namespace, queue)

    def _queues_of(self, gang: Gang) -> set[str]:
        queues = {kin.labels.get(QUEUE, "") for kin in gang.kins} if gang.group else set[str]()
        return (queues - {""}) | {self._standings.of_gang(gang).queue}

    def _is_ending(self, gang: Gang) -> bool:
        """Say whether pods of a gang are on nodes and going, of older attempts too."""
        numbers = [kin.number for kin in gang.kins]
        return bool(self._heads[numbers][:, (RELEASING, STUCK)].any())

    def _use(self, namespace: str, queue: str) -> Use | None:
        """Return what is to be asked; nothing of a queue that takes no units anyway."""
        if self._queues.bar(queue) is not None:
            return None
        return self._permits.use(Key(namespace, queue), self._queues.access(queue))

    def _is_waiting(self, kin: Kin) -> bool:
        return bool(self._heads[kin.number, WAITING])

    def _promised(self) -> list[Key]:
        """Return the gangs that hold slots, or were promised a node."""
        kins = (self._kins[int(self._roll.kin[slot])] for slot in self._roll.nominated)
        named = [kin.gang for kin in kins if kin.gang is not None]
        return [*self._holdings.texts, *named]

    def _all_strays(self) -> Iterable[Stray]:
        yield from self._nodes.strays
        yield from self._queues.strays
        yield from dict.fromkeys(
            stray for key in sorted(self._strays) for stray in sorted(self._strays[key])
        )
        yield from sorted(self._holdings.strays)
