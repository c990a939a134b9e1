"""The solver: which candidates to evict, the first valid set of which no victim can be spared.

Candidates have ranks; of two sets the one with the smaller ranks, in order, is first. A set is
valid if each candidate of it may be evicted when those before it are, if it leaves enough
resources free, and if all checks hold. A victim can be spared if enough is free without it.

Allowed candidates are evicted in order until enough is free; then the spare candidates are
restored, the last ones first. What is left is most often the first valid set. If a candidate was
passed over, the same is tried with all: if there never is enough then, no set is valid. At last
sets are checked one by one for an earlier one: all of up to eight candidates, and of more as many.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

_MAX_SETS: Final = 2**8  # all sets of eight

Ranks: TypeAlias = tuple[int, ...]
_Candidate_contra = TypeVar("_Candidate_contra", contravariant=True)


class Scenario(Protocol[_Candidate_contra]):
    """What holds if some candidates are evicted; none is at first.

    The solver's scenario answers for all checks of an action, and each check is one as well. A
    check inherits the answers to the questions that do not concern it.
    """

    def may_evict(self, _candidate: _Candidate_contra, /) -> bool:
        """Say whether one more may be evicted. One that may, may if fewer are evicted."""
        return True

    def evict(self, candidate: _Candidate_contra, /) -> None: ...

    def restore(self, candidate: _Candidate_contra, /) -> None:
        """Restore a candidate, in any order."""
        ...

    def is_valid(self) -> bool:
        """Say whether the evictions are valid.

        It is called only if all may be evicted, the request fits, and none can be spared.
        """
        return True


class Solution(NamedTuple):
    """The first valid set of candidates; *ranks* is None if there is none."""

    ranks: Ranks | None
    tried: int = 0  # sets that were checked one by one
    is_truncated: bool = False  # not all sets were checked


def solve(
    count: int, scenario: Scenario[int], fits: Callable[[], bool], limit: int = _MAX_SETS
) -> Solution:
    """Choose among so many candidates; afterwards the scenario is used up: some may be evicted.

    *fits* says whether what is requested fits without the evicted candidates. With none evicted
    it does not; if it does, it does if more are evicted. It is called often, and should cost what
    changed since. At most *limit* sets are checked one by one: a few hundred.
    """
    solver = _Solver(count, scenario, fits, limit)
    greedy = solver.solve_greedily()
    if greedy and _is_first(greedy):
        return Solution(greedy)
    if solver.last_needed is None:
        return Solution(None)
    return Solution(solver.first_before(greedy) or greedy, solver.tried, solver.is_truncated)


class _Solver:
    def __init__(
        self, count: int, scenario: Scenario[int], fits: Callable[[], bool], limit: int
    ) -> None:
        self.tried = 0
        self.is_truncated = False
        self.last_needed: int | None = None  # without this one, or one after it, nothing fits
        self._count = count
        self._scenario = scenario
        self._fits = fits
        self._limit = limit

    def solve_greedily(self) -> Ranks | None:
        """Return a valid set, found by evicting all that may be, or just all, in order."""
        taken, refused = self._evict_until_it_fits(checks_each=True)
        self.last_needed = taken[-1] if taken else None
        needed = self._without_spared(taken)
        found = tuple(needed) if needed and self._scenario.is_valid() else None
        if found and _is_first(found):
            return found  # the scenario is not used any more
        self._restore(needed)
        if not refused:
            return found
        taken, _ = self._evict_until_it_fits(checks_each=False)
        self.last_needed = taken[-1] if taken else None
        if found or not taken:
            self._restore(taken)
            return found
        needed = self._without_spared(taken)
        self._restore(needed)
        return tuple(needed) if self._is_valid(needed) else None

    def first_before(self, greedy: Ranks | None, first: Ranks = ()) -> Ranks | None:
        """Return the first valid set that begins so, if it comes before the greedy one."""
        scenario = self._scenario
        for candidate in range(first[-1] + 1 if first else 0, self._count):
            ranks = (*first, candidate)
            if greedy is not None and ranks >= greedy:
                return None
            if self.tried == self._limit:
                self.is_truncated = True
                return None
            self.tried += 1
            if not scenario.may_evict(candidate):
                continue
            scenario.evict(candidate)
            if not self._fits_after(candidate):
                found = self.first_before(greedy, ranks)
            else:  # of a larger set that begins so a candidate can be spared
                found = ranks if self._is_smallest(ranks) and scenario.is_valid() else None
            scenario.restore(candidate)
            if found is not None or self.is_truncated:
                return found
        return None

    def _evict_until_it_fits(self, *, checks_each: bool) -> tuple[list[int], bool]:
        """Evict candidates until the request fits; return them, or none, and if any was refused.

        Whether it fits is checked with one, two, four of them, and so on; then by bisection
        between the last two numbers.
        """
        taken: list[int] = []
        refused, last_checked = False, 0
        for candidate in range(self._count):
            if checks_each and not self._scenario.may_evict(candidate):
                refused = True
                continue
            self._scenario.evict(candidate)
            taken.append(candidate)
            if len(taken) == 2 * last_checked or not last_checked:
                if self._fits():
                    return self._shortest_that_fits(taken, last_checked), refused
                last_checked = len(taken)
        if len(taken) > last_checked and self._fits():
            return self._shortest_that_fits(taken, last_checked), refused
        self._restore(taken)
        return [], refused

    def _shortest_that_fits(self, taken: list[int], too_few: int) -> list[int]:
        """Restore the last ones of candidates that are enough; *too_few* of them are not."""
        evicted = enough = len(taken)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            for candidate in reversed(taken[middle:evicted]):
                self._scenario.restore(candidate)
            for candidate in taken[evicted:middle]:
                self._scenario.evict(candidate)
            evicted = middle
            if self._fits():
                enough = middle
            else:
                too_few = middle
        for candidate in taken[evicted:enough]:
            self._scenario.evict(candidate)
        return taken[:enough]

    def _without_spared(self, taken: list[int]) -> list[int]:
        """Restore the candidates that can be spared, the last ones first; return the others.

        The result is that of sparing one by one, which spares a whole run exactly if the request
        fits with none of it evicted. So whole runs are tried, each as long as what was spared since
        the last needed candidate; of a run that cannot be spared, bisection finds the needed one.
        """
        left, needed = taken[:-1], taken[-1:]  # without the last one it did not fit
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
            needed.append(left.pop())
            spared = 0
        return needed[::-1]

    def _can_spare(self, run: list[int]) -> bool:
        """Restore a run of candidates, if the request fits then."""
        for candidate in run:
            self._scenario.restore(candidate)
        if self._fits():
            return True
        for candidate in run:
            self._scenario.evict(candidate)
        return False

    def _is_valid(self, ranks: Sequence[int]) -> bool:
        taken: list[int] = []
        for candidate in ranks:
            if not self._scenario.may_evict(candidate):
                break
            self._scenario.evict(candidate)
            taken.append(candidate)
        is_valid = len(taken) == len(ranks) and self._scenario.is_valid()
        self._restore(taken)
        return is_valid

    def _fits_after(self, last: int) -> bool:
        """Say whether the request fits, given the last one of the evicted candidates."""
        return self.last_needed is not None and last >= self.last_needed and self._fits()

    def _is_smallest(self, ranks: Ranks) -> bool:
        """Say whether none can be spared; the last one cannot, or the set was not tried."""
        for candidate in ranks[:-1]:
            self._scenario.restore(candidate)
            fits = self._fits_after(ranks[-1])
            self._scenario.evict(candidate)
            if fits:
                return False
        return True

    def _restore(self, taken: list[int]) -> None:
        for candidate in taken:
            self._scenario.restore(candidate)


def _is_first(ranks: Ranks) -> bool:
    """Say whether no candidate was passed over: only parts of this set come before it."""
    return ranks[-1] == len(ranks) - 1
