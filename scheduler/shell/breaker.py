"""How many GPUs may be taken from those who run: a mistake in a queue must not empty a cluster.

A bucket that is filled up every minute. Whoever begins to take while there is anything in it may
take it below nothing, for a claim is met whole or not at all; the next one waits for a minute in
which something is left.

A process that begins to lead takes over what was evicted before: each eviction stands on its
PodGroup, and all of them go through the bucket once more. Pods without a PodGroup leave nothing
behind, and a PodGroup that is deleted takes its eviction with it.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from scheduler.state.terms import epoch_s
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import EVICTED_GPUS, LAST_EVICTION
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.quantity import QuantityError, milli, spell_milli
from trainer_kai.clock import Clock

__all__ = ["Breaker", "Eviction", "evictions_of", "noted", "reduced"]

_LEAST: Final = 64_000  # thousandths of a GPU
_PART: Final = 10  # of all there are
_FILLED_S: Final = 60.0


class Eviction(NamedTuple):
    """When GPUs were taken, in seconds since 1970, and how many thousandths of one."""

    at_s: float
    gpus: int


class _Taken(NamedTuple):
    """What was taken and is not filled up yet; when the minute began in which it was."""

    gpus: int = 0
    since_s: float = 0.0

    def filled(self, size: int, now_s: float) -> "_Taken":
        """Return it with whole minutes filled up."""
        minutes = max(0, int((now_s - self.since_s) // _FILLED_S))
        return _Taken(max(0, self.gpus - minutes * size), self.since_s + minutes * _FILLED_S)

    def after(self, gpus: int, now_s: float) -> "_Taken":
        """Return it with more taken, or fewer."""
        begins = gpus > 0 and not self.gpus
        return _Taken(max(0, self.gpus + gpus), now_s if begins else self.since_s)


class Breaker:
    """The bucket; thousandths of GPUs."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._taken = _Taken()

    def take_over(self, evictions: Iterable[Eviction], gpus: int) -> None:
        """Take note of what was evicted before we led, in a cluster of so many GPUs."""
        now_s = self._clock.now().timestamp()
        before = self._clock.monotonic_s() - now_s
        size, taken = _size(gpus), _Taken()
        for at_s, number in sorted(Eviction(min(it.at_s, now_s), it.gpus) for it in evictions):
            taken = taken.filled(size, at_s + before).after(number, at_s + before)
        ours = self._taken.filled(size, self._clock.monotonic_s())
        self._taken = max(ours, taken.filled(size, self._clock.monotonic_s()))

    def left(self, gpus: int) -> int:
        """Return what may be taken now in a cluster of so many."""
        size = _size(gpus)
        self._taken = self._taken.filled(size, self._clock.monotonic_s())
        return size - self._taken.gpus

    def take(self, gpus: int) -> None:
        """Take note that so many were taken; below zero, that they were not after all."""
        self._taken = self._taken.after(gpus, self._clock.monotonic_s())


def evictions_of(groups: Iterable[PodGroup]) -> Iterator[Eviction]:
    """Yield what stands on PodGroups of their last evictions."""
    for group in groups:
        found = _eviction_of(group.metadata)
        if found is not None:
            yield found


def noted(meta: Meta, gpus: int, now_s: float) -> str:
    """Return what is to stand on a PodGroup that loses GPUs, those of the last minute with it."""
    last = _eviction_of(meta)
    more = last.gpus if last is not None and now_s - last.at_s < _FILLED_S else 0
    return spell_milli(gpus + more)


def reduced(meta: Meta, gpus: int) -> str:
    """Return what is to stand on a PodGroup that did not lose so many GPUs after all."""
    last = _eviction_of(meta)
    return spell_milli(max(last.gpus - gpus, 0) if last is not None else 0)


def _eviction_of(meta: Meta) -> Eviction | None:
    at_s = epoch_s(meta.annotations.get(LAST_EVICTION, ""))
    try:
        gpus = milli(meta.annotations.get(EVICTED_GPUS, "0"))
    except QuantityError:
        return None
    return Eviction(at_s, gpus) if at_s and gpus > 0 else None


def _size(gpus: int) -> int:
    return max(_LEAST, gpus // _PART)
