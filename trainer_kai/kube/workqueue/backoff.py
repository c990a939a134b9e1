"""The wait before a retry: longer each time, and different for each client.

It does not wait itself and does not decide whether to retry; the source of randomness is an
argument.
"""

from collections.abc import Callable


class Backoff:
    """The waits of one thing that fails repeatedly.

    Each wait is between half of a step and the whole step ("equal jitter"), and the step doubles
    from *first_s* up to *cap_s*. The lower half prevents a busy loop.
    """

    def __init__(self, first_s: float, cap_s: float, jitter: Callable[[], float]) -> None:
        """Set the first step, the longest one, and a source of numbers from 0 to 1."""
        assert 0 < first_s <= cap_s, (first_s, cap_s)
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self._step_s = first_s
        self._tries = 0

    @property
    def tries(self) -> int:
        """Return the number of waits since the last success."""
        return self._tries

    def next_s(self, floor_s: float | None = None) -> float:
        """Return the next wait, and double the step.

        *floor_s* is the wait that the API server asks for: it is kept even above the cap, and
        clients with the same answer do not return at the same moment.
        """
        share = self._jitter()
        step_s = self._step_s
        self._step_s = min(step_s * 2, self._cap_s)
        self._tries += 1
        wait_s = step_s * (1 + share) / 2
        if floor_s is None:
            return wait_s
        return max(wait_s, floor_s + self._first_s * share)

    def reset(self) -> None:
        """Begin with the first step again, after a success."""
        self._step_s = self._first_s
        self._tries = 0
