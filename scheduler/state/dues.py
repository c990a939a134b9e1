"""Which queue each kin charges, and what gangs owe beyond the pods that they have."""

from collections import Counter
from typing import Final, NamedTuple

from scheduler.core.model import NONE, Bar, Ints, Kind
from scheduler.state.bars import has_begun, is_silent
from scheduler.state.charges import QueueCharges
from scheduler.state.gang import Gang
from scheduler.state.kin import Kin
from scheduler.state.standing import Standing
from scheduler.state.view import View
from trainer_kai.api.meta import Key

__all__ = ["Dues"]


class _Due(NamedTuple):
    """Of one gang: what its slots have, and what it asks for besides its pods."""

    queue: int
    is_fixed: bool
    held: list[int]  # numbers of any size
    expected: list[int]


class Dues:
    """By gang, of those that owe anything."""

    def __init__(self) -> None:
        self._of_gang: Final[dict[Key, _Due]] = {}

    def drop(self, key: Key) -> None:
        """Forget a gang."""
        self._of_gang.pop(key, None)

    def read_alone(self, view: View, kin: Kin, bar: Bar | None) -> None:
        """Say what pods on their own charge; *bar* is in the way of those that wait."""
        kins, standing = view.roll.kins, view.standings.of_alone(kin)
        kins.queue[kin.number] = view.queues.row_of(standing.queue)
        kins.is_fixed[kin.number] = not standing.is_preemptible
        kins.is_heard[kin.number] = not is_silent(bar)

    def read_stray(self, view: View, kin: Kin) -> None:
        """Say what pods charge that run without a place in the group that they name."""
        kins, standing = view.roll.kins, view.standings.of_stray(kin)
        kins.queue[kin.number] = view.queues.row_of(standing.queue)
        kins.is_fixed[kin.number] = kins.is_heard[kin.number] = False

    def read(self, view: View, gang: Gang, bar: Bar | None) -> None:
        """Say what the pods of a gang charge, and what it owes; *bar* is in its way."""
        kins, standing = view.roll.kins, view.standings.of_gang(gang)
        queue, is_fixed = _charged(view, gang, standing), not standing.is_preemptible
        is_heard = not gang.is_suspended and not is_silent(bar)
        for kin in gang.refused:
            self.read_stray(view, kin)
        for kin in gang.kins:
            kins.queue[kin.number], kins.is_fixed[kin.number] = queue, is_fixed
            kins.is_heard[kin.number] = is_heard and kins.counts[kin.number]
        self._of_gang.pop(gang.key, None)
        if queue != NONE and gang.is_listed and (gang.later or view.holdings.of(gang)):
            held, expected = Counter[int](), Counter[int]()  # pods by kin
            unclaimed: dict[str, int] = {}
            for leaf, slots in view.holdings.of(gang).items():
                held[slots.kin.number] += len(slots.at)
                claiming = gang.waiting(leaf, view.roll)[: len(slots.at)]
                unclaimed[leaf] = len(slots.at) - len(claiming)
                for slot in claiming if is_heard else ():  # what it waits for is its own slot
                    expected[int(view.roll.kin[slot])] -= 1
            for leaf, (kin, _) in gang.later.items() if is_heard and gang.is_wanting else ():
                later = gang.to_come(leaf) - unclaimed.get(leaf, 0)
                expected[kin.number] += max(later, 0)
            counted = view.codes.asks.counted
            due = _Due(queue, is_fixed, _sum(held, counted), _sum(expected, counted))
            if any(due.held) or any(due.expected):
                self._of_gang[gang.key] = due

    def charge(self, charges: QueueCharges) -> None:
        """Charge what is owed."""
        for due in self._of_gang.values():
            charges.hold(due.queue, due.held, is_fixed=due.is_fixed)
            charges.expect(due.queue, due.expected)


def _charged(view: View, gang: Gang, standing: Standing) -> int:
    """Return the queue that pods charge; none that they may not start in.

    What is on nodes of a gang that has not begun there is ending, and ran in another queue.
    """
    queue = standing.queue
    pair = Key(gang.key.namespace, queue)
    if not has_begun(gang) and view.permits.is_refused(pair, view.queues.access(queue)):
        return NONE
    if gang.group is None:
        return view.queues.first_of(queue, standing.else_queue)
    return view.queues.row_of(queue)


def _sum(pods: Counter[int], counted: Ints) -> list[int]:
    """Return what so many pods of each kin are charged."""
    rows = [(counted[kin].tolist(), count) for kin, count in pods.items()]
    return [sum(row[kind] * count for row, count in rows) for kind in Kind]
