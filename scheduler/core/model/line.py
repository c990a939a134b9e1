"""A place in the line: how long a large PodGroup has waited for room, and what is kept for it.

The record is written on the PodGroup when it changes, so that it survives a change of leader. How
much is kept is not read from it: each plan finds that anew from what is free.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

LEAST_TURN_S: Final = 600  # for which all that the next one needs may be kept
MOST_BACK_OFF_S: Final = 24 * 3600


class LineRecord(NamedTuple):
    """All times are in seconds since 1970, and 0 is never."""

    since: int  # it waits for room
    request: str  # what it requests: with another request it begins anew
    next_since: int = 0  # it is the next one of the cluster
    nodes: tuple[int, ...] = ()  # on which room is kept
    gpus: int = 0  # thousandths that are kept, since `at`
    at: int = 0
    used: int = 0  # thousandths of GPUs times seconds that were kept until `at`
    tries: int = 0  # how often it has given up
    again_at: int = 0  # before, it does not become the next one again
    paused_s: int = 0  # of the time since it waits, in which it waited for something else
    paused_at: int = 0  # since when it waits for something else
    nodes_since: tuple[int, ...] = ()  # since when room is kept on each of the nodes

    def used_at(self, now: int) -> int:
        return self.used + self.gpus * max(0, now - self.at)

    def waited_s(self, now: int) -> int:
        """Return for how long it has waited for room."""
        return (self.paused_at or now) - self.since - self.paused_s

    def earned_s(self, now: int) -> int:
        """Return for how long all that it needs may be kept: as long as it had waited before."""
        return max(self.waited_s(self.next_since or now), LEAST_TURN_S)

    def turn_s(self, now: int) -> int:
        """Return for how long it may be the next one: while it is gathered about half is there."""
        return 2 * self.earned_s(now)

    def not_next(self, now: int) -> "LineRecord":
        if not self.next_since:
            return self
        return self._replace(
            next_since=0, nodes=(), nodes_since=(), gpus=0, at=0, used=self.used_at(now)
        )

    def gave_up(self, now: int, back_off_s: int) -> "LineRecord":
        again_at = now + min(back_off_s * 2**self.tries, MOST_BACK_OFF_S)
        return self.not_next(now)._replace(tries=self.tries + 1, again_at=again_at)

    def paused(self, now: int) -> "LineRecord":
        """Return it while it does not wait for room: that time does not count."""
        return self if self.paused_at else self.not_next(now)._replace(paused_at=now)

    def resumed(self, now: int) -> "LineRecord":
        if not self.paused_at:
            return self
        paused_s = self.paused_s + max(0, now - self.paused_at)
        return self._replace(paused_at=0, paused_s=paused_s)

    def begun_anew(self, now: int, request: str, back_off_s: int) -> "LineRecord":
        """Return it with another request: how often it gave up stays, also that it would have."""
        before = self.gave_up(now, back_off_s) if self.next_since else self
        return LineRecord(now, request, tries=before.tries, again_at=before.again_at)

    def keeping(self, now: int, nodes: "tuple[KeptNode, ...]") -> "LineRecord":
        """Return it while it is next and so much is kept."""
        rows, gpus = tuple([it.node for it in nodes]), sum([it.gpus for it in nodes])
        if self.next_since and (self.nodes, self.gpus) == (rows, gpus):
            return self
        before = self.since_by_node
        return self._replace(
            next_since=self.next_since or now,
            nodes=rows,
            nodes_since=tuple([before.get(it, now) for it in rows]),
            gpus=gpus,
            at=now,
            used=self.used_at(now),
        )

    @property
    def since_by_node(self) -> dict[int, int]:
        since = self.nodes_since or (self.at,) * len(self.nodes)
        return dict(zip(self.nodes, since, strict=True))


class LineChange(NamedTuple):
    podgroup: int
    record: LineRecord | None  # None: it has no place in the line


class KeptNode(NamedTuple):
    node: int
    gpus: int  # thousandths; none where all of it is still in use
    since: int = 0
    free_at: int = 0  # when all that it needs there is free, by ends that are enforced


class LineNote(NamedTuple):
    """What is kept, for which PodGroup."""

    podgroup: int
    needed: int  # thousandths of GPUs
    nodes: tuple[KeptNode, ...]
    awaited: tuple[KeptNode, ...] = ()  # on which it is to start, and nothing is there yet
    planned_at: int = 0  # when it is expected to start, by ends that are enforced; 0 is not known

    @property
    def gpus(self) -> int:
        return sum([it.gpus for it in self.nodes])

    @property
    def since(self) -> int:
        return min([it.since for it in self.nodes])


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What keeping room may cost."""

    eligible_after_s: int = 1800  # of waiting for room without a break
    max_kept_percent: int = 10  # of the GPUs of the cluster, and at least one node
    back_off_s: int = 1800  # after it has given up for the first time; each time twice as long


DEFAULT_LINE: Final = LineSettings()
