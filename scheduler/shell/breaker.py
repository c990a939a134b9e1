"""How many GPUs may be taken from those who run: a mistake in a queue must not empty a cluster.

A bucket that is filled up every minute. Whoever begins to take while there is anything in it may
take it below nothing, for a claim is met whole or not at all; the next one waits for a minute in
which something is left.
"""

from typing import Final

from trainer_kai.clock import Clock

__all__ = ["Breaker"]

_LEAST: Final = 64_000  # thousandths of a GPU
_PART: Final = 10  # of all there are
_FILLED_S: Final = 60.0


class Breaker:
    """The bucket; thousandths of GPUs."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._taken = 0
        self._since_s = 0.0  # when the minute began in which something was taken

    def left(self, gpus: int) -> int:
        """Return what may be taken now in a cluster of so many."""
        size = max(_LEAST, gpus // _PART)
        minutes = int((self._clock.monotonic_s() - self._since_s) // _FILLED_S)
        self._since_s += minutes * _FILLED_S
        self._taken = max(0, self._taken - minutes * size)
        return size - self._taken

    def take(self, gpus: int) -> None:
        """Take note that so many were taken; below zero, that they were not after all."""
        if gpus > 0 and not self._taken:
            self._since_s = self._clock.monotonic_s()
        self._taken = max(0, self._taken + gpus)
