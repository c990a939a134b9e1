"""A place in the line: how long a large PodGroup has waited for room, and what is kept for it.

The record is written on the PodGroup when it changes, so that it survives a change of leader. How
much is kept is not read from it: each plan finds that anew from what is free.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple


class LineRecord(NamedTuple):
    """All times are in seconds since 1970, and 0 is never."""

    since: int  # it waits for room without a break
    request: str  # what it requests: with another request it begins anew
    next_since: int = 0  # it is the next one of the cluster
    nodes: tuple[int, ...] = ()  # on which room is kept
    gpus: int = 0  # thousandths that are kept, since `at`
    at: int = 0
    used: int = 0  # thousandths of GPUs times seconds that were kept until `at`
    tries: int = 0  # how often it has given up
    again_at: int = 0  # before, it does not become the next one again

    def used_at(self, now: int) -> int:
        return self.used + self.gpus * max(0, now - self.at)


class LineChange(NamedTuple):
    podgroup: int
    record: LineRecord | None  # None: it has no place in the line


class KeptNode(NamedTuple):
    node: int
    gpus: int  # thousandths
    free_at: int = 0  # when all that it needs there is free, by ends that are enforced


class LineNote(NamedTuple):
    """What is kept, for which PodGroup."""

    podgroup: int
    since: int
    needed: int  # thousandths of GPUs
    nodes: tuple[KeptNode, ...]
    planned_at: int = 0  # when it is expected to start, by ends that are enforced; 0 is not known

    @property
    def gpus(self) -> int:
        return sum([it.gpus for it in self.nodes])


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What keeping room may cost."""

    eligible_after_s: int = 1800  # of waiting for room without a break
    max_kept_percent: int = 10  # of the GPUs of the cluster, and at least one node
    back_off_s: int = 1800  # after it has given up for the first time; each time twice as long


DEFAULT_LINE: Final = LineSettings()
