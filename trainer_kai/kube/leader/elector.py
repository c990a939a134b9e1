"""Leader election on a Lease: of several processes at most one acts.

The contract:

1. `lead` runs its work while this process is the leader, again each time that it becomes the
   leader. It ends when the work ends, or when it is cancelled.
2. No wall clock decides anything. A leader counts from the moment *before* it sent the renewal that
   succeeded. A follower counts from the moment *after* it first read the Lease in its current
   version. Both use their own monotonic clock.
3. The leader's fence holds for `renew_deadline_s`. A follower takes over after `lease_s`, or after
   the duration in the Lease if that is longer, and only if the Lease still has the version that it
   counted for, which the API server compares. So two fences never hold at the same time.
4. The work writes with `client.with_fence(fence)`: the fence is checked each time before a write is
   sent, and each write has a time limit of at most `write_s`. So a write that is sent at the last
   moment is finished before another process leads: `renew_deadline_s + write_s < lease_s`. After a
   pause of the process (SIGSTOP, a busy loop) the fence is correct at once, before any timer runs;
   timers would be too late.
5. When the deadline passes, the work is cancelled and awaited. Until then the Lease is not acquired
   again.
6. When `lead` is cancelled or the work ends, the Lease is renewed until the work has ended, the
   fence is closed and every write was answered or is `write_s` old. Then the Lease is released, so
   that the next leader need not wait until it expires.
7. A fence that was closed never holds again: what an earlier term left running cannot write. Work
   that ends with `LeaseLost`, also as a group of only this error, has lost the lead: this process
   becomes a follower.
8. A Lease that is missing, or that was never held, may have been deleted under a running leader. A
   process that creates or acquires such a Lease acts only after `lease_s`. If the Lease of a leader
   is deleted, it creates it again, and continues if that succeeds before its fence would have
   fallen.
9. An API server that fails or throttles for less than the deadline has no effect. Forbidden ends
   `lead` and names the missing permission; a process that was allowed before waits for `lease_s`
   first, because a starting API server refuses everything until it has read the roles.

What it cannot prevent: a process writes late if it is stopped between checking the fence and
sending, or if the network delays its request for longer than `lease_s - renew_deadline_s`. Only
the API server can refuse such a write: use a uid or resourceVersion for writes that must not happen
twice. To clear the holder of a Lease by hand is to say that no process acts.

The monotonic clock must count the time while a machine is suspended (CLOCK_BOOTTIME on Linux),
because other machines continue meanwhile.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from trainer_kai.errors import InvariantError
from trainer_kai.kube.leader.lease import (
    Fence,
    LeaderTerm,
    LeaseClient,
    LeaseLost,
    LeaseRecord,
    WrittenLease,
)
from trainer_kai.kube.process.tasks import cancel_all, errors_if_all_are, finish_within
from trainer_kai.kube.rest.response import ApiError, Conflict, Forbidden, NotFound, is_retryable

LeaderWork = Callable[[Fence], Awaitable[None]]
_JITTER: Final = 0.2  # of a wait: so that followers do not read all at once
_SOON_FRACTION: Final = 0.25  # of the usual wait, if an immediate retry makes sense


class _Leadership(NamedTuple):
    """Several things that must end in order."""

    term: LeaderTerm
    fence: Fence
    working: asyncio.Task[None]
    renewing: asyncio.Task[None]


class LeaderElector:
    """A candidate for a Lease; no other process may ever use the same identity."""

    def __init__(
        self,
        lease_client: LeaseClient,
        log: FilteringBoundLogger,
        *,
        on_leading: Callable[[bool], None] = lambda _: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Create a candidate; *on_leading* is called whenever leading begins and ends."""
        self._lease_client = lease_client
        self._clock = lease_client.clock
        self._timing = lease_client.timing
        self._log = log.bind(identity=lease_client.identity)
        self._on_leading = on_leading
        self._jitter = jitter
        self._observed: LeaseRecord | None = None  # as it was last read or written
        self._observed_s = 0.0  # when it was first seen in this version
        # when the Lease was acquired with which this process may lead at once
        self._settled_acquire_time = ""
        self._term: LeaderTerm | None = None
        # since when access is forbidden, though it was allowed before
        self._forbidden_s: float | None = None

    @property
    def holder(self) -> str:
        """Return the current holder of the Lease as far as known; "" for none."""
        return self._observed.holder if self._observed else ""

    async def lead(self, work: LeaderWork) -> None:
        """Follow until the Lease is acquired, run the work, and repeat when the lead is lost."""
        while True:
            self._term = await self._acquire()
            if await self._run_term(self._term, work):
                return

    async def _acquire(self) -> LeaderTerm:
        while True:
            pause_s = self._pause_s()
            try:
                term = await self._try_acquire()
                self._forbidden_s = None
                if term is not None:
                    return term
            except Conflict:
                self._log.debug("another process was first")
            except ApiError as error:
                if not (is_retryable(error) or self._is_newly_forbidden(error)):
                    raise
                self._log.warning("lease not acquired", error=str(error))
                pause_s = max(pause_s, error.retry_after_s or 0)
            await self._clock.sleep(pause_s)

    def _is_newly_forbidden(self, error: ApiError) -> bool:
        """Say whether access was allowed before, and was not refused for long.

        A starting API server refuses everything until it has read the roles.
        """
        if not isinstance(error, Forbidden) or self._observed is None:
            return False
        now_s = self._clock.monotonic_s()
        self._forbidden_s = now_s if self._forbidden_s is None else self._forbidden_s
        return now_s - self._forbidden_s < self._timing.lease_s

    async def _try_acquire(self) -> LeaderTerm | None:
        current = await self._lease_client.read(self._timing.request_s)
        self._observe(current)
        if current is None or self._may_acquire(current):
            next_record = self._lease_client.next_record(current)
            is_safe = current is not None and self._is_history_known(current)
            if is_safe:
                # even if no response arrives: only this version is overwritten
                self._settled_acquire_time = next_record.acquired
            written = await self._lease_client.write(current, next_record, self._timing.request_s)
            return self._begin_term(written, is_settled=is_safe)
        return None

    def _may_acquire(self, current: LeaseRecord) -> bool:
        if current.holder in ("", self._lease_client.identity):
            return True
        duration_s = max(self._timing.lease_s, current.duration_s)
        return self._clock.monotonic_s() >= self._observed_s + duration_s

    def _is_history_known(self, current: LeaseRecord) -> bool:
        """Say whether no process can be leading once this version is overwritten."""
        if current.holder == self._lease_client.identity:
            return current.acquired == self._settled_acquire_time
        return current.renewed != ""

    def _begin_term(self, written: WrittenLease, *, is_settled: bool) -> LeaderTerm | None:
        record, sent_s = written
        self._observe(record)
        now_s = self._clock.monotonic_s()
        until_s = sent_s + self._timing.renew_deadline_s
        if now_s >= until_s:
            return None  # the response was too late: the next read finds our name
        if is_settled:
            return LeaderTerm(record, until_s)
        self._log.info("lease has no history", acts_after_s=self._timing.lease_s)
        return LeaderTerm(record, until_s, settles_after_s=now_s + self._timing.lease_s)

    async def _run_term(self, term: LeaderTerm, work: LeaderWork) -> bool:
        """Lead until the term or the work ends; say whether the work ended."""
        is_settled_event = asyncio.Event()

        def confirm(record: LeaseRecord) -> None:
            self._settled_acquire_time = record.acquired
            is_settled_event.set()

        if term.is_settled:
            is_settled_event.set()
        renewer = LeaseRenewer(
            self._lease_client,
            term,
            self._log,
            pause_s=self._pause_s,
            on_observed=self._observe,
            on_settled=confirm,
        )
        fence = Fence(term, self._timing.write_s, self._clock.monotonic_s)
        renewing = asyncio.create_task(renewer.run(), name="renew lease")
        working = asyncio.create_task(self._run_work(is_settled_event, work, fence), name="lead")
        try:
            await asyncio.wait({renewing, working}, return_when=asyncio.FIRST_COMPLETED)
            finished = working.done()
        finally:
            await self._step_down(_Leadership(term, fence, working, renewing))
        if not renewing.cancelled():
            renewing.result()  # raises the error that made renewals hopeless
        error = None if working.cancelled() else working.exception()
        if error is not None and errors_if_all_are(LeaseLost, error) is None:
            raise error
        return finished and error is None

    async def _run_work(
        self, is_settled_event: asyncio.Event, work: LeaderWork, fence: Fence
    ) -> None:
        await is_settled_event.wait()
        self._log.info("started leading", transitions=self._observed and self._observed.transitions)
        self._on_leading(True)  # noqa: FBT003 - the callback has one question
        try:
            await work(fence)
        finally:
            self._log.info("stopped leading")
            self._on_leading(False)  # noqa: FBT003 - as above

    async def _step_down(self, leadership: _Leadership) -> None:
        """End the work, close the fence, wait for writes, release the Lease: in this order.

        Until then the Lease is renewed, if possible. After a second cancellation it expires
        instead.
        """
        term, fence, working, renewing = leadership
        still_running: set[asyncio.Task[None]] = {working}
        is_ours = False
        try:
            working.cancel()
            still_running = await finish_within(self._clock, self._timing.lease_s, [working])
            term.writes_stopped = True
            if term.is_settled and not still_running:
                await self._clock.sleep(fence.writes_end_s - self._clock.monotonic_s())
                is_ours = term.remaining_s(self._clock.monotonic_s()) > 0
        finally:
            term.end()
            await cancel_all({working, renewing} - still_running)
        if still_running:
            message = "leading task did not end although it was cancelled"
            raise InvariantError(message)
        if is_ours and term.record is not None:
            await self._release(term.record)

    async def _release(self, record: LeaseRecord) -> None:
        try:
            await self._lease_client.release(record)
        except Conflict:
            self._log.debug("lease changed while it was released")
            await self._release_again(record)
        except ApiError as error:
            self._log.warning("lease not released", error=str(error))

    async def _release_again(self, record: LeaseRecord) -> None:
        try:
            current = await self._lease_client.read(self._timing.request_s)
            if current and (current.holder, current.acquired) == (record.holder, record.acquired):
                await self._lease_client.release(current)
        except ApiError as error:
            self._log.warning("lease not released", error=str(error))

    def _observe(self, record: LeaseRecord | None) -> None:
        """Record since when, on our clock, the Lease is in its current version."""
        if record == self._observed:
            return
        if record is not None and record.holder != self.holder:
            self._log.info("leader changed", leader=record.holder)
        self._observed = record
        self._observed_s = self._clock.monotonic_s()

    def _pause_s(self) -> float:
        return self._timing.retry_s * (1 + _JITTER * self._jitter())


class LeaseRenewer:
    """Renews a Lease repeatedly and in time, until the term is lost.

    It runs beside the leading task and never waits for it.
    """

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
            wait_s = min(pause_s, max(remaining_s / 2, self._retry_soon_s), remaining_s)
            await self._lease_client.clock.sleep(wait_s)
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
        lease_client = self._lease_client
        self._term.restart_settling(lease_client.clock.monotonic_s() + lease_client.timing.lease_s)

    async def _check_holder(self) -> float:
        """Find out which process holds the Lease, after a write that failed or was too late."""
        try:
            limit_s = min(self._lease_client.timing.request_s, self._remaining_s())
            current = await self._lease_client.read(limit_s)
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
        left_s = round(self._remaining_s(), 1)
        self._log.warning("lease not renewed", error=str(error), left_s=left_s)
        return max(self._pause_s(), error.retry_after_s or 0)
