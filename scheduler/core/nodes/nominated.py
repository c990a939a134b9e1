"""Nominated capacity: resources and quota that are reserved for PodGroups with nominated pods.

Resources of victims are nominated for their preemptor until they are released. Given to another
PodGroup, or back to the victim, they would have been taken for nothing, and be taken once more. So
the queues of such PodGroups come first, and others can use neither the resources nor the quota. A
PodGroup that comes earlier in the same queue and could preempt at once is the exception.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.gang import SignatureRuns, Tasks
from scheduler.core.model.resources import NONE, Amounts
from scheduler.core.model.result import QuotaRefusal
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.reserved_places import Places, PlaceWithDevices
from scheduler.core.nodes.working_nodes import WorkingNodes

_NON_PREEMPTIBLE_PRIORITY: Final = 2**63  # of non-preemptible PodGroups: no other is larger
NominationAccess = tuple[int, int]  # a queue and a priority
_NO_ACCESS: Final[NominationAccess] = (NONE, 0)


class NominatedPodGroups:
    """The pending PodGroups with a nominated node for each of their next pods."""

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._usage: Final = usage
        self._nominated_signatures: Final = {
            row
            for row, signature in enumerate(snapshot.signatures)
            if signature.nominated_node != NONE
        }
        self._pending: Final[set[int]] = set()
        self._pending_below: Final[Counter[int]] = Counter()  # how many, by queue

    def __bool__(self) -> bool:
        return bool(self._nominated_signatures)

    def all_nominated(self, tasks: Tasks) -> bool:
        """There must be some."""
        signature = self._snapshot.pods.signature
        pods = [pod for podset_tasks in tasks for pod in podset_tasks.pods]
        return bool(pods) and all(self.is_nominated(int(signature[pod])) for pod in pods)

    def is_nominated(self, signature: int) -> bool:
        return signature in self._nominated_signatures

    def add_pending(self, rows: Iterable[int]) -> bool:
        for row in rows:
            self._pending.add(row)
            self._pending_below.update(self._usage.paths[self._snapshot.podgroups[row].queue])
        return bool(self._pending)

    def attempted(self, row: int) -> None:
        if row in self._pending:
            self._pending.remove(row)
            self._pending_below.subtract(self._usage.paths[self._snapshot.podgroups[row].queue])

    def rank(self, queue: int, best: int) -> int:
        """Return 0 for a queue if its best PodGroup is nominated, 1 if others of it are, else 2.

        PodGroups that are not nominated come early only as long as their queue has to, and do not
        take what is nominated for other queues.
        """
        if best in self._pending:
            return 0
        return 1 if self._pending_below[queue] > 0 else 2


class _Nomination(NamedTuple):
    row: int
    attempt_index: int  # 0 for the next attempt; each later pod is one
    places: Places
    queue_request: Amounts


class NominatedCapacity:
    """What is reserved, by queue, priority and PodGroup."""

    def __init__(self, nodes: WorkingNodes, usage: Usage) -> None:
        self._snapshot: Final = nodes.snapshot
        self._nodes: Final = nodes
        self._usage: Final = usage
        self._charged: Final = usage.emptied()
        self._nominations: Final[dict[int, dict[int, dict[int, list[_Nomination]]]]] = {}
        self._released: list[_Nomination] = []

    def __bool__(self) -> bool:
        return bool(self._nominations)

    def reserve(self, podgroups: Iterable[tuple[int, Sequence[SignatureRuns]]]) -> None:
        """Reserve what is nominated for PodGroups, by signatures of attempts; each that fits."""
        self._reserve(
            [
                self._nomination(row, attempt_index, signatures)
                for row, attempts in podgroups
                for attempt_index, signatures in enumerate(attempts)
            ]
        )

    def release(self, row: int) -> bool:
        """Release what is reserved for a PodGroup that is attempted; say if there was anything."""
        if not self._nominations:  # asked for every PodGroup, and mostly nothing is reserved
            return False
        queue, priority = self._queue_and_priority(row)
        own = self._nominations.get(queue, {}).get(priority, {}).pop(row, [])
        self._unreserve(own)
        self._forget_empty(queue, priority)
        return bool(own)

    def may_use_lower_priority(self, row: int) -> bool:
        return bool(self._lower_priorities(row))

    def access(self, row: int) -> NominationAccess:
        """Return of which queue and below which priority a PodGroup may use what is reserved."""
        if not self._nominations:
            return _NO_ACCESS
        podgroup = self._snapshot.podgroups[row]
        return (podgroup.queue, podgroup.priority) if self._lower_priorities(row) else _NO_ACCESS

    def refusal(
        self, row: int, check_quota: Callable[[], QuotaRefusal | None]
    ) -> QuotaRefusal | None:
        """Check bounds as if what is reserved were allocated, but for what a PodGroup may use."""
        path = self._usage.paths[self._snapshot.podgroups[row].queue]
        self._usage.add(path, self._charged, 1)
        refusal = check_quota()
        if refusal is not None and (own := self._lower_nominations(row)):
            self._charge(own, self._usage, -1)
            refusal = check_quota()
            self._charge(own, self._usage, 1)
        self._usage.add(path, self._charged, -1)
        return refusal

    def release_lower_priority(self, row: int) -> None:
        self._released = self._lower_nominations(row)
        queue = self._snapshot.podgroups[row].queue
        for priority in self._lower_priorities(row):
            self._nominations[queue][priority].clear()
            self._forget_empty(queue, priority)
        self._unreserve(self._released)

    def restore(self) -> None:
        """Reserve again what was released and is still free."""
        if not self._released:
            return
        self._reserve(sorted(self._released, key=lambda it: it[:2]))  # the oldest first
        self._released = []

    def _queue_and_priority(self, row: int) -> NominationAccess:
        podgroup = self._snapshot.podgroups[row]
        return (
            podgroup.queue,
            podgroup.priority if podgroup.is_preemptible else _NON_PREEMPTIBLE_PRIORITY,
        )

    def _lower_priorities(self, row: int) -> list[int]:
        """Return the priorities that a PodGroup could preempt at once."""
        podgroup = self._snapshot.podgroups[row]
        if podgroup.preemption_delay_until > self._snapshot.now:
            return []
        return [
            priority
            for priority in self._nominations.get(podgroup.queue, ())
            if priority < podgroup.priority
        ]

    def _lower_nominations(self, row: int) -> list[_Nomination]:
        of = self._nominations.get(self._snapshot.podgroups[row].queue, {})
        return [
            it
            for priority in self._lower_priorities(row)
            for of_one in of[priority].values()
            for it in of_one
        ]

    def _forget_empty(self, queue: int, priority: int) -> None:
        if not self._nominations.get(queue, {}).get(priority, True):
            del self._nominations[queue][priority]
        if not self._nominations.get(queue, True):
            del self._nominations[queue]

    def _nomination(self, row: int, attempt_index: int, signatures: SignatureRuns) -> _Nomination:
        every, nodes = self._snapshot.signatures, self._nodes
        rows = [it for it, count in signatures for _ in range(count)]
        at = [(every[it].nominated_node, it) for it in rows if every[it].nominated_node != NONE]
        places = Places(
            np.array([node for node, _ in at], dtype=np.int64),
            np.array([every[it].request for _, it in at], dtype=np.int64),
            tuple([PlaceWithDevices(node, it) for node, it in at if nodes.devices.of[it]]),
        )
        charges = [nodes.charges.on(it, node) for node, it in at]
        cpu, memory, gpu = map(sum, zip(*charges, strict=True))
        return _Nomination(row, attempt_index, places, (cpu, memory, gpu))

    def _reserve(self, nominations: list[_Nomination]) -> None:
        """Reserve each of these that fits, in order: all at once, or else by halves."""
        if not nominations:
            return
        reserved = self._nodes.reserved.add([one.places for one in nominations])
        if reserved is not None:
            pairs = zip(nominations, reserved, strict=True)
            nominations = [one._replace(places=places) for one, places in pairs]
            for one in nominations:
                queue, priority = self._queue_and_priority(one.row)
                of = self._nominations.setdefault(queue, {}).setdefault(priority, {})
                of.setdefault(one.row, []).append(one)
            self._charge(nominations, self._charged, 1)
        elif len(nominations) > 1:
            half = len(nominations) // 2
            self._reserve(nominations[:half])
            self._reserve(nominations[half:])

    def _unreserve(self, nominations: list[_Nomination]) -> None:
        if nominations:
            self._nodes.reserved.undo([one.places for one in nominations])
            self._charge(nominations, self._charged, -1)

    def _charge(self, nominations: list[_Nomination], usage: Usage, sign: int) -> None:
        for row, _, _, (cpu, memory, gpu) in nominations:
            podgroup = self._snapshot.podgroups[row]
            amounts = (sign * cpu, sign * memory, sign * gpu)
            usage.charge(podgroup.queue, amounts, is_non_preemptible=not podgroup.is_preemptible)
