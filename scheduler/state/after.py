"""What has to be over, or ready, before a gang may begin, and how far it is.

It is seen by the pods of the earlier stage; when those have been removed, by pods of the gang that
are made only afterwards, or by what the JobSet says of itself.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.core.model import Bar, Verdict
from scheduler.state.gang import Gang
from scheduler.state.gangs import Gangs
from scheduler.state.roll import GATED, SUCCEEDED, THERE, WAITING, Roll
from trainer_kai.api.meta import Key
from trainer_kai.policy.anticipated import After
from trainer_kai.policy.stages import COMPLETE

__all__ = ["Afters"]

_ALIVE: Final = (WAITING, GATED, THERE)
_WAKES_ON: Final = frozenset({"pods", "jobsets"})


class Afters:
    """The rule: it is told a gang and returns what that waits for."""

    def __init__(self, roll: Roll, gangs: Gangs) -> None:
        self._roll: Final = roll
        self._gangs: Final = gangs

    def __call__(self, gang: Gang) -> Iterator[Bar]:
        """Yield what is not over yet, all in one."""
        waits = [self._told(gang, one) for one in gang.said.after if not self._is_over(gang, one)]
        if waits:
            yield Bar(Verdict.WAITING_FOR_STAGE, "; ".join(waits), _WAKES_ON)

    def _is_over(self, gang: Gang, after: After) -> bool:
        if not after.group:
            return True  # another scheduler has its pods, and they are in no group
        if _is_begun(gang, after.before) or _is_said_to_be_over(gang, after):
            return True
        return all(self._is_reached(gang, after, index) for index in range(after.replicas))

    def _is_reached(self, gang: Gang, after: After, index: int) -> bool:
        before = self._gangs.find(Key(gang.key.namespace, after.group))
        if before is None:
            return after.count <= 0
        leaf = f"{after.sub_group_prefix}{index}"
        if after.status == COMPLETE:
            is_running = any(before.of(leaf, state) for state in _ALIVE)
            return before.of(leaf, SUCCEEDED) >= after.count and not is_running
        return self._done(before, after, leaf) >= after.count

    def _done(self, before: Gang, after: After, leaf: str) -> int:
        """Return how many pods of a leaf have succeeded, or, if that is enough, are ready."""
        succeeded = before.of(leaf, SUCCEEDED)
        return succeeded if after.status == COMPLETE else succeeded + self._ready(before, leaf)

    def _ready(self, before: Gang, leaf: str) -> int:
        roll = self._roll
        kins = (kin for kin in before.leaves.get(leaf, ()) if roll.kins.counts[kin.number])
        there = (slot for kin in kins for slot in kin.slots if roll.state[slot] == THERE)
        return sum(
            any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
            for pod in map(roll.pod, there)
        )

    def _told(self, gang: Gang, after: After) -> str:
        before = self._gangs.find(Key(gang.key.namespace, after.group))
        done = 0
        if before is not None:
            leaves = (leaf for leaf in before.leaves if leaf.startswith(after.sub_group_prefix))
            done = sum(min(self._done(before, after, leaf), after.count) for leaf in leaves)
        needed = after.count * after.replicas
        what = "have succeeded" if after.status == COMPLETE else "are ready"
        still = ", but some still run" if done >= needed else ""
        return f"{done} of {needed} pods of {after.replicated_job} {what}{still}"


def _is_begun(gang: Gang, prefixes: tuple[str, ...]) -> bool:
    """Say whether a pod is there that is made only afterwards."""
    states = (*_ALIVE, SUCCEEDED)
    return any(
        leaf.startswith(prefix) and leaf.removeprefix(prefix).isdecimal()
        for leaf in gang.leaves
        if any(gang.of(leaf, state) for state in states)
        for prefix in prefixes
    )


def _is_said_to_be_over(gang: Gang, after: After) -> bool:
    """Say whether the JobSet counts all its Jobs as that far; their pods may be gone."""
    counts = gang.jobset.status.replicated_jobs_status if gang.jobset else ()
    for one in counts:
        if one.name == after.replicated_job:
            done = one.succeeded if after.status == COMPLETE else one.succeeded + one.ready
            return done >= after.replicas
    return False
