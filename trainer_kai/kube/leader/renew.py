"""Renew a Lease that this process holds, repeatedly and in time, until it is lost.

It runs beside the leading task and never waits for it. The contract in
`trainer_kai.kube.leader.elector` says why each step is safe.
"""

from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from trainer_kai.kube.leader.lease import LeaderTerm, LeaseRecord
from trainer_kai.kube.leader.lease_client import LeaseClient
from trainer_kai.kube.rest.errors import ApiError, Conflict, Forbidden, NotFound, is_retryable

_SOON_FRACTION: Final = 0.25  # of the usual wait, if an immediate retry makes sense


class LeaseRenewer:
    """The renewals of one term."""

    def __init__(
        self,
        lease_client: LeaseClient,
        term: LeaderTerm,
        log: FilteringBoundLogger,
        *,
        pause_s: Callable[[], float],
        on_observed: Callable[[LeaseRecord | None], None],
        on_settled: Callable[[LeaseRecord], None],
    ) -> None:
        self._lease_client = lease_client
        self._term = term
        self._log = log
        self._pause_s = pause_s
        self._on_observed = on_observed
        self._on_settled = on_settled

    async def run(self) -> None:
        """Renew until the term ends; raise an error that makes renewals hopeless."""
        pause_s = self._pause_s()
        while (remaining_s := self._remaining_s()) > 0:
            # a long wait must leave time for one more attempt
            await self._lease_client.clock.sleep(
                min(pause_s, max(remaining_s / 2, self._retry_soon_s), remaining_s)
            )
            if self._remaining_s() > 0:
                pause_s = await self._renew_once()
        self._term.end()

    @property
    def _retry_soon_s(self) -> float:
        return self._lease_client.timing.retry_s * _SOON_FRACTION

    def _remaining_s(self) -> float:
        return self._term.remaining_s(self._lease_client.clock.monotonic_s())

    async def _renew_once(self) -> float:
        """Renew once; return the wait until the next renewal."""
        try:
            await self._renew()
        except NotFound:
            self._log.warning("lease was deleted")
            self._restart_settling()
            self._term.record = None  # the next attempt creates it
        except Conflict:
            self._restart_settling()
            return await self._check_holder()
        except ApiError as error:
            return self._wait_after(error)
        else:
            return self._pause_s()
        return self._retry_soon_s

    async def _renew(self) -> None:
        term, timing, clock = self._term, self._lease_client.timing, self._lease_client.clock
        is_created = term.record is None
        next_record = self._lease_client.next_record(term.record)
        limit_s = min(timing.request_s, self._remaining_s())
        record, sent_s = await self._lease_client.write(term.record, next_record, limit_s)
        now_s = clock.monotonic_s()
        if is_created:
            term.restart_settling(now_s + timing.lease_s)
        term.extend(record, sent_s, timing.renew_deadline_s, now_s)
        self._on_observed(record)
        if term.allows_write(now_s):
            self._on_settled(record)

    def _restart_settling(self) -> None:
        """Begin to settle again: between our writes another process may have written."""
        self._term.restart_settling(
            self._lease_client.clock.monotonic_s() + self._lease_client.timing.lease_s
        )

    async def _check_holder(self) -> float:
        """Find out which process holds the Lease, after a write that failed or was too late."""
        try:
            current = await self._lease_client.read(
                min(self._lease_client.timing.request_s, self._remaining_s())
            )
        except ApiError as error:
            return self._wait_after(error)
        self._on_observed(current)
        if current is None or current.holder == self._lease_client.identity:
            self._term.record = current
        else:
            self._term.end()
        return self._retry_soon_s

    def _wait_after(self, error: ApiError) -> float:
        if not (is_retryable(error) or isinstance(error, Forbidden)):  # we were allowed to begin
            raise error
        self._log.warning(
            "lease not renewed", error=str(error), left_s=round(self._remaining_s(), 1)
        )
        return max(self._pause_s(), error.retry_after_s or 0)
