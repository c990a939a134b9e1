"""How long to wait before the next try: longer each time, and not all clients at once.

It neither waits nor decides whether to try again; chance is passed in.
"""

from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """The waits of one thing that fails again and again.

    Each wait lies between half of a step and the whole of it ("equal jitter"), and the step doubles
    from *first_s* up to *cap_s*. Half is kept so that a failing thing never spins.
    """

    def __init__(self, first_s: float, cap_s: float, jitter: Callable[[], float]) -> None:
        """Take the first step, the last one, and a source of numbers from 0 to 1."""
        assert 0 < first_s <= cap_s, (first_s, cap_s)
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self._step_s = first_s
        self._tries = 0

    @property
    def tries(self) -> int:
        """Return how many waits were asked for since the last success."""
        return self._tries

    def next_s(self, floor_s: float | None = None) -> float:
        """Return how long to wait now, and make the next step longer.

        *floor_s* is what the API server asked for: it is kept even beyond the cap, and clients with
        the same answer do not come back in the same instant.
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
        """Begin again with the first step: it worked."""
        self._step_s = self._first_s
        self._tries = 0
