"""Whom of many to take: the first set of candidates that does and has nobody to spare.

Candidates have ranks; of two sets the one comes first whose ranks, in order, are smaller. A set
does if each of it may be taken when those before it are gone, and if what all of them leave is
room enough, and fair. Whoever is not needed for the room can be spared: nobody is taken only to
make it fair.

Of those who may be, as many are taken, in order, as it takes for there to be room; whoever can be
spared then is, the last ones first. What is left is most often the first set that there is. If
somebody was passed over, the same is tried with everybody: if there never is room then, no set
does. At last sets are looked at one by one, whether one that comes before does: of up to eight
candidates all, and of more as many.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

__all__ = ["Choice", "Stake", "choose"]

_LIMIT: Final = 2**8  # all sets of eight

Ranks: TypeAlias = tuple[int, ...]


class Stake(Protocol):
    """What would be if some candidates were gone; nobody is at first, and then there is no room."""

    def may_lose(self, candidate: int) -> bool:
        """Say whether one more may go. Whoever may, might with fewer gone."""
        ...

    def take(self, candidate: int) -> None:
        """Have it gone."""
        ...

    def spare(self, candidate: int) -> None:
        """Have it back, whoever was taken after it."""
        ...

    def has_room(self) -> bool:
        """Say whether those who are gone leave room enough; if so, they do with more gone.

        It is asked often, and should cost what changed since.
        """
        ...

    def is_fair(self) -> bool:
        """Say whether it is fair to those who lost something.

        It is asked only of who may be taken, leaves room enough, and has nobody to spare.
        """
        ...


class Choice(NamedTuple):
    """Whom to take, if anybody does."""

    ranks: Ranks | None
    tried: int = 0  # sets, one by one
    is_cut: bool = False  # not all sets were looked at


def choose(count: int, stake: Stake, limit: int = _LIMIT) -> Choice:
    """Choose among so many candidates; afterwards the stake is spent: somebody may be gone.

    The *limit* is of sets that are looked at one by one: a few hundred.
    """
    search = _Search(count, stake, limit)
    known = search.walk()
    if known and _is_first(known):
        return Choice(known)
    if search.enough is None:
        return Choice(None)
    return Choice(search.before(known) or known, search.tried, search.is_cut)


class _Search:
    def __init__(self, count: int, stake: Stake, limit: int) -> None:
        self.tried = 0
        self.is_cut = False
        self.enough: int | None = None  # nobody before this one is needed for there to be room
        self._count = count
        self._stake = stake
        self._limit = limit

    def walk(self) -> Ranks | None:
        """Return a set that does, found by taking whoever may be, or everybody, in order."""
        taken, refused = self._until_room(asks=True)
        self.enough = taken[-1] if taken else None
        kept = self._spared(taken)
        found = tuple(kept) if kept and self._stake.is_fair() else None
        if found and _is_first(found):
            return found  # and that is all that is asked of the stake
        self._give_back(kept)
        if not refused:
            return found
        taken, _ = self._until_room(asks=False)
        self.enough = taken[-1] if taken else None
        if found or not taken:
            self._give_back(taken)
            return found
        kept = self._spared(taken)
        self._give_back(kept)
        return tuple(kept) if self._does(kept) else None

    def before(self, known: Ranks | None, first: Ranks = ()) -> Ranks | None:
        """Return the first set that does and begins so, if it comes before one that is known."""
        stake = self._stake
        for one in range(first[-1] + 1 if first else 0, self._count):
            ranks = (*first, one)
            if known is not None and ranks >= known:
                return None
            if self.tried == self._limit:
                self.is_cut = True
                return None
            self.tried += 1
            if not stake.may_lose(one):
                continue
            stake.take(one)
            if not self._has_room(one):
                found = self.before(known, ranks)
            else:  # of a larger set that begins so somebody can be spared
                found = ranks if self._is_smallest(ranks) and stake.is_fair() else None
            stake.spare(one)
            if found is not None or self.is_cut:
                return found
        return None

    def _until_room(self, *, asks: bool) -> tuple[list[int], bool]:
        """Take candidates until there is room; return them, or nobody, and if any was refused.

        Whether there is room is asked of one, two, four of them, and so on; then it is looked for
        between the last two answers.
        """
        taken: list[int] = []
        refused, asked = False, 0
        for one in range(self._count):
            if asks and not self._stake.may_lose(one):
                refused = True
                continue
            self._stake.take(one)
            taken.append(one)
            if len(taken) == 2 * asked or not asked:
                if self._stake.has_room():
                    return self._first_of(taken, asked), refused
                asked = len(taken)
        if len(taken) > asked and self._stake.has_room():
            return self._first_of(taken, asked), refused
        self._give_back(taken)
        return [], refused

    def _first_of(self, taken: list[int], too_few: int) -> list[int]:
        """Spare the last ones of those who leave room; *too_few* of them do not."""
        gone = enough = len(taken)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            for one in reversed(taken[middle:gone]):
                self._stake.spare(one)
            for one in taken[gone:middle]:
                self._stake.take(one)
            gone = middle
            if self._stake.has_room():
                enough = middle
            else:
                too_few = middle
        for one in taken[gone:enough]:
            self._stake.take(one)
        return taken[:enough]

    def _spared(self, taken: list[int]) -> list[int]:
        """Spare whoever can be, the last ones first; return who could not.

        It is whom sparing one by one would leave. That spares all of a run exactly if there is room
        with none of it gone: this is what is asked at last, and before that more of it is gone. So
        runs are tried, as long as what was spared since somebody was needed; of one that cannot be
        spared the halves tell who is needed.
        """
        left, kept = taken[:-1], taken[-1:]  # without the last one there was no room
        spared = 0
        while left:
            run = left[-max(spared, 1) :]
            if self._can_spare(run):
                del left[-len(run) :]
                spared += len(run)
                continue
            while len(run) > 1:
                half = run[len(run) // 2 :]
                if self._can_spare(half):
                    del left[-len(half) :]
                    run = run[: -len(half)]
                else:
                    run = half
            kept.append(left.pop())
            spared = 0
        return kept[::-1]

    def _can_spare(self, run: list[int]) -> bool:
        """Spare some, if there is room without them."""
        for one in run:
            self._stake.spare(one)
        if self._stake.has_room():
            return True
        for one in run:
            self._stake.take(one)
        return False

    def _does(self, ranks: Sequence[int]) -> bool:
        """Say whether those of a set may be taken, one after another, and that is fair."""
        taken: list[int] = []
        for one in ranks:
            if not self._stake.may_lose(one):
                break
            self._stake.take(one)
            taken.append(one)
        does = len(taken) == len(ranks) and self._stake.is_fair()
        self._give_back(taken)
        return does

    def _has_room(self, last: int) -> bool:
        """Say whether those who are gone leave room enough, of whom somebody is the last."""
        return self.enough is not None and last >= self.enough and self._stake.has_room()

    def _is_smallest(self, ranks: Ranks) -> bool:
        """Say whether nobody can be spared; the last one cannot, or it was not tried."""
        for one in ranks[:-1]:
            self._stake.spare(one)
            has_room = self._has_room(ranks[-1])
            self._stake.take(one)
            if has_room:
                return False
        return True

    def _give_back(self, taken: list[int]) -> None:
        for one in taken:
            self._stake.spare(one)


def _is_first(ranks: Ranks) -> bool:
    """Say whether nobody was passed over: of other sets only parts of it come before."""
    return ranks[-1] == len(ranks) - 1
