"""Who could be moved: whole units that find the same room elsewhere, and nothing else on their way.

Their pods go, and others are made in place of them: until those come slots are held. So who moves
must be able to hold slots, be whole, and have pods of which each leaf asks for one thing only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from scheduler.core.chunks import PodSetTasks, Tasks, is_satisfied
from scheduler.core.model import (
    NONE,
    PodGroupInfo,
    PodSet,
    SchedulingSignature,
    Snapshot,
    podsets_of,
)
from scheduler.core.tenants import Victim, is_evictable, victims_of

__all__ = ["ConsolidationCandidates", "relocated_signatures"]


class ConsolidationCandidates:
    """What those who could be moved need anew, by unit."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Final = snapshot
        members = victims_of(snapshot)
        found = (
            (row, self._tasks(row, podgroup, members))
            for row, podgroup in enumerate(snapshot.podgroups)
        )
        self.tasks: Final[dict[int, Tasks]] = {row: tasks for row, tasks in found if tasks}

    def order(self, podgroups: Iterable[int]) -> list[tuple[int, PodSetTasks]]:
        """Return what units need in the order of its placement: the largest pods first."""
        signatures = self._snapshot.signatures

        def size(one: tuple[int, PodSetTasks]) -> tuple[int, int, int]:
            cpu, memory, gpu = signatures[one[1].podset.expected_signature].queue_request
            return -gpu, -cpu, -memory

        return sorted(
            ((row, podset_tasks) for row in podgroups for podset_tasks in self.tasks[row]), key=size
        )

    def _tasks(
        self, row: int, podgroup: PodGroupInfo, members: Callable[[int], tuple[Victim, ...]]
    ) -> Tasks:
        """Return what a unit needs anew; nothing if it cannot be moved."""
        if not (
            podgroup.may_relocate
            and podgroup.has_running
            and podgroup.can_reserve
            and podgroup.prefilter_failure is None
        ):
            return ()
        if not is_evictable(podgroup) or podgroup.is_partly_succeeded:
            return ()
        podsets = podsets_of(podgroup.tree)
        if not is_satisfied(podgroup.tree):
            return ()
        there = members(row)  # with slots there are more than there are pods
        signature_of = relocated_signatures(self._snapshot, row, [it.signature for it in there])
        if signature_of is None or not all(self._is_placeable_anywhere(it) for it in there):
            return ()
        if not all(self._has_same_signature(podset, signature_of) for podset in podsets):
            return ()
        return tuple(
            PodSetTasks(
                PodSet(
                    podset.name,
                    0,
                    expected=podset.running,
                    expected_signature=signature_of[podset.name],
                ),
                (),
                podset.running,
            )
            for podset in podsets
            if podset.running
        )

    def _is_placeable_anywhere(self, member: Victim) -> bool:
        """Say whether a pod can be anywhere, whoever is beside it."""
        signature = self._snapshot.signatures[member.signature]
        return member.node != NONE and not (
            signature.affinity or signature.spread_constraints or signature.shared_devices
        )

    def _has_same_signature(self, podset: PodSet, signature_of: dict[str, int]) -> bool:
        """Say whether pods that wait ask for the same as those that are there."""
        if not podset.pending or not podset.running:
            return True
        signatures, signature_at = self._snapshot.signatures, self._snapshot.pods.signature
        want = _without_nomination(signatures[signature_of[podset.name]])
        return all(
            _without_nomination(signatures[signature_at[pod]]) == want for pod in podset.pending
        )


def relocated_signatures(
    snapshot: Snapshot, row: int, there: Sequence[int]
) -> dict[str, int] | None:
    """Return the shape of the pods of each leaf, if they have one, and no others are there.

    *there* are the shapes of all its pods that are on nodes.
    """
    podsets = [podset for podset in podsets_of(snapshot.podgroups[row].tree) if podset.running]
    if not there or sum([podset.running for podset in podsets]) != len(there):
        return None
    found: dict[str, int] = {}
    for podset in podsets:
        of = there
        if len(podsets) > 1:
            of = [int(snapshot.pods.signature[pod]) for pod in podset.running_pods]
        if len(of) != podset.running or len({*of}) > 1:
            return None
        found[podset.name] = of[0]
    return found


def _without_nomination(signature: SchedulingSignature) -> SchedulingSignature:
    return replace(signature, nominated_node=NONE)
