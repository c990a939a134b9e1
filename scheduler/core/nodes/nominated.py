"""Nominated capacity: room and quota reserved for PodGroups whose pods were nominated to nodes.

Resources of victims are nominated for their preemptor until they are released. Given to another
PodGroup, or back to the victim, they would have been taken for nothing, and be taken once more. So
the queues of such PodGroups come first, and others neither see the room nor get its quota. A
PodGroup that comes earlier in the same queue and could preempt at once is the exception.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.gang.tasks_to_allocate import SignatureRuns, Tasks
from scheduler.core.model.plugins import QuotaRefusal
from scheduler.core.model.resources import NONE, Amounts, Ints
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.statement import Statement

__all__ = [
    "NominatedCapacity",
    "NominatedPodGroups",
]


class NominatedPodGroups:
    """Of units that have their turns, those of whose next pods each was promised a node."""

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
        """Say whether each of these pods was promised a node; there must be some."""
        signature = self._snapshot.pods.signature
        pods = [pod for podset_tasks in tasks for pod in podset_tasks.pods]
        return bool(pods) and all(self.is_nominated(int(signature[pod])) for pod in pods)

    def is_nominated(self, signature: int) -> bool:
        """Say whether pods of a shape were promised a node."""
        return signature in self._nominated_signatures

    def add_pending(self, rows: Iterable[int]) -> bool:
        """Take note of some who were promised something, and are to have their turns; if any."""
        for row in rows:
            self._pending.add(row)
            self._pending_below.update(self._usage.paths[self._snapshot.podgroups[row].queue])
        return bool(self._pending)

    def attempted(self, row: int) -> None:
        """Forget somebody."""
        if row in self._pending:
            self._pending.remove(row)
            self._pending_below.subtract(self._usage.paths[self._snapshot.podgroups[row].queue])

    def rank(self, queue: int, best: int) -> int:
        """Return 0 for a queue whose best unit was promised something, 1 if others were, else 2.

        Who was promised nothing comes early only as long as its queue has to, and is not to take
        what other queues were promised.
        """
        if best in self._pending:
            return 0
        return 1 if self._pending_below[queue] > 0 else 2


_NON_PREEMPTIBLE_PRIORITY: Final = (
    2**63
)  # the priority of who cannot be preempted: nobody's is larger
NominationAccess = tuple[int, int]  # a queue and a priority


class _Nomination(NamedTuple):
    row: int
    attempt_index: int  # what it takes next is 0; of what it takes then each pod is one
    nodes: Ints  # [pod]
    amounts: Ints  # [pod, resource]
    queue_request: Amounts


class NominatedCapacity:
    """What is set aside, by queue, priority and unit."""

    def __init__(self, snapshot: Snapshot, statement: Statement, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._statement: Final = statement
        self._usage: Final = usage
        self._charged: Final = usage.emptied()
        self._nominations: Final[dict[int, dict[int, dict[int, list[_Nomination]]]]] = {}
        self._lifted: list[_Nomination] = []

    def __bool__(self) -> bool:
        return bool(self._nominations)

    def reserve(self, podgroups: Iterable[tuple[int, Sequence[SignatureRuns]]]) -> None:
        """Set aside what units were promised, by the shapes of their parts; each that fits."""
        self._reserve(
            [
                self._nomination(row, podset_tasks, signatures)
                for row, tasks in podgroups
                for podset_tasks, signatures in enumerate(tasks)
            ]
        )

    def release(self, row: int) -> bool:
        """Leave it to a unit whose turn has come, if something is set aside for it."""
        queue, priority = self._queue_and_priority(row)
        reclaimer_queue = self._nominations.get(queue, {}).get(priority, {}).pop(row, [])
        self._unreserve(reclaimer_queue)
        self._forget_empty(queue, priority)
        return bool(reclaimer_queue)

    def may_use_lower_priority(self, row: int) -> bool:
        """Say whether a unit may have anything of what is set aside."""
        return bool(self._lower_priorities(row))

    def access(self, row: int) -> NominationAccess:
        """Say of which queue and below which priority a unit may have what is set aside."""
        podgroup = self._snapshot.podgroups[row]
        return (podgroup.queue, podgroup.priority) if self._lower_priorities(row) else (NONE, 0)

    def refusal(self, row: int, request: Callable[[], QuotaRefusal | None]) -> QuotaRefusal | None:
        """Ask for bounds as if everybody had what is set aside for him, unless this one may."""
        path = self._usage.paths[self._snapshot.podgroups[row].queue]
        self._usage.add(path, self._charged, 1)
        refusal = request()
        if refusal is not None and (reclaimer_queue := self._lower_nominations(row)):
            self._charge(reclaimer_queue, self._usage, -1)
            refusal = request()
            self._charge(reclaimer_queue, self._usage, 1)
        self._usage.add(path, self._charged, -1)
        return refusal

    def release_lower_priority(self, row: int) -> None:
        """Let somebody have what he may of what is set aside."""
        self._lifted = self._lower_nominations(row)
        queue = self._snapshot.podgroups[row].queue
        for priority in self._lower_priorities(row):
            self._nominations[queue][priority].clear()
            self._forget_empty(queue, priority)
        self._unreserve(self._lifted)

    def restore(self) -> None:
        """Set aside again what was lifted and is still there."""
        self._reserve(sorted(self._lifted, key=lambda it: it[:2]))  # the oldest first
        self._lifted = []

    def _queue_and_priority(self, row: int) -> NominationAccess:
        podgroup = self._snapshot.podgroups[row]
        return (
            podgroup.queue,
            podgroup.priority if podgroup.is_preemptible else _NON_PREEMPTIBLE_PRIORITY,
        )

    def _lower_priorities(self, row: int) -> list[int]:
        """Return the priorities of those whom a unit could preempt at once."""
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

    def _nomination(self, row: int, podset_tasks: int, signatures: SignatureRuns) -> _Nomination:
        every = ((self._snapshot.signatures[signature], count) for signature, count in signatures)
        some = [one for one, count in every if one.nominated_node != NONE for _ in range(count)]
        nodes = np.array([one.nominated_node for one in some], dtype=np.int64)
        amounts = np.array([one.request for one in some], dtype=np.int64)
        cpu, memory, gpu = (
            sum(amount) for amount in zip(*[it.queue_request for it in some], strict=True)
        )
        return _Nomination(row, podset_tasks, nodes, amounts, (cpu, memory, gpu))

    def _reserve(self, promises: list[_Nomination]) -> None:
        """Set aside each of these that fits, in order: all at once, or else by halves."""
        if not promises:
            return
        nodes, amounts = _concatenated(promises)
        self._statement.reserve(nodes, amounts)
        if ((self._statement.free[nodes] >= 0) | (amounts == 0)).all():
            for one in promises:
                queue, priority = self._queue_and_priority(one.row)
                of = self._nominations.setdefault(queue, {}).setdefault(priority, {})
                of.setdefault(one.row, []).append(one)
            self._charge(promises, self._charged, 1)
            return
        self._statement.reserve(nodes, -amounts)
        if len(promises) > 1:
            half = len(promises) // 2
            self._reserve(promises[:half])
            self._reserve(promises[half:])

    def _unreserve(self, promises: list[_Nomination]) -> None:
        if promises:
            nodes, amounts = _concatenated(promises)
            self._statement.reserve(nodes, -amounts)
            self._charge(promises, self._charged, -1)

    def _charge(self, promises: list[_Nomination], usage: Usage, sign: int) -> None:
        for row, _, _, _, (cpu, memory, gpu) in promises:
            podgroup = self._snapshot.podgroups[row]
            amounts = (sign * cpu, sign * memory, sign * gpu)
            usage.charge(podgroup.queue, amounts, is_non_preemptible=not podgroup.is_preemptible)


def _concatenated(promises: list[_Nomination]) -> tuple[Ints, Ints]:
    if len(promises) == 1:
        return promises[0].nodes, promises[0].amounts
    nodes = np.concatenate([one.nodes for one in promises])
    return nodes, np.concatenate([one.amounts for one in promises])
