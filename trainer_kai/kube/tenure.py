"""Keep a Lease that is ours: renew it in time, again and again, until it is lost.

It works beside the leading task and never waits for it. Why each step is safe stands in the
contract in `trainer_kai.kube.leader`.
"""

from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from trainer_kai.kube.claim import Claim
from trainer_kai.kube.errors import ApiError, Conflict, Forbidden, NotFound, is_retryable
from trainer_kai.kube.lease import LeaseRecord, Term

__all__ = ["Tenure"]

_SOON: Final = 0.25  # of the usual pause, when there is reason to try again at once


class Tenure:
    """The renewals of one term."""

    def __init__(
        self,
        claim: Claim,
        term: Term,
        log: FilteringBoundLogger,
        *,
        pause_s: Callable[[], float],
        seen: Callable[[LeaseRecord | None], None],
        confirmed: Callable[[LeaseRecord], None],
    ) -> None:
        self._claim = claim
        self._term = term
        self._log = log
        self._pause_s = pause_s
        self._seen = seen
        self._confirmed = confirmed

    async def keep(self) -> None:
        """Renew until the term is over; raise what makes renewing hopeless."""
        pause_s = self._pause_s()
        while (left_s := self._left_s()) > 0:
            # a long pause must leave time for one more try
            await self._claim.clock.sleep(min(pause_s, max(left_s / 2, self._soon_s), left_s))
            if self._left_s() > 0:
                pause_s = await self._try()
        self._term.end()

    @property
    def _soon_s(self) -> float:
        return self._claim.timing.retry_s * _SOON

    def _left_s(self) -> float:
        return self._term.left_s(self._claim.clock.monotonic_s())

    async def _try(self) -> float:
        """Renew once; return how long to wait before the next time."""
        try:
            await self._renew()
        except NotFound:
            self._log.warning("lease was deleted")
            self._doubt()
            self._term.record = None  # the next try makes it
        except Conflict:
            self._doubt()
            return await self._look()
        except ApiError as error:
            return self._wait_after(error)
        else:
            return self._pause_s()
        return self._soon_s

    async def _renew(self) -> None:
        term, timing, clock = self._term, self._claim.timing, self._claim.clock
        made = term.record is None
        entry = self._claim.entry(term.record)
        limit_s = min(timing.request_s, self._left_s())
        record, sent_s = await self._claim.write(term.record, entry, limit_s)
        now_s = clock.monotonic_s()
        if made:
            term.doubt(now_s + timing.lease_s)
        term.renewed(record, sent_s, timing.renew_deadline_s, now_s)
        self._seen(record)
        if term.allows(now_s):
            self._confirmed(record)

    def _doubt(self) -> None:
        """Count anew: between our writes there may have been one of somebody else."""
        self._term.doubt(self._claim.clock.monotonic_s() + self._claim.timing.lease_s)

    async def _look(self) -> float:
        """Find out whose the Lease is, after a write that came too late or was not answered."""
        try:
            found = await self._claim.read(min(self._claim.timing.request_s, self._left_s()))
        except ApiError as error:
            return self._wait_after(error)
        self._seen(found)
        if found is None or found.holder == self._claim.identity:
            self._term.record = found
        else:
            self._term.end()
        return self._soon_s

    def _wait_after(self, error: ApiError) -> float:
        if not (is_retryable(error) or isinstance(error, Forbidden)):  # we were allowed to begin
            raise error
        self._log.warning("lease not renewed", error=str(error), left_s=round(self._left_s(), 1))
        return max(self._pause_s(), error.retry_after_s or 0)
