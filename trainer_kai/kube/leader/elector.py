"""Leader election on a Lease: of several processes at most one acts.

The contract:

1. `lead` runs the work it is given while this process is the leader, again each time it becomes the
   leader. It ends when the work ends, or when it is cancelled.
2. No wall clock decides anything. A leader counts from the moment *before* it sent the
   renewal that succeeded. A follower counts from the moment *after* it first read the Lease in its
   present version. Both use their own monotonic clock.
3. The leader's fence holds for `renew_deadline_s`. A follower takes over after `lease_s`, or after
   the duration that the holder wrote if that is longer, and only if the Lease still has the
   version that it counted for: the API server compares. So no two fences hold at once.
4. The work writes with `client.with_fence(fence)`: the fence is asked before each time that a write
   is sent, and each has a time-out of at most `write_s`. A write sent at the last moment is thus
   over before another process leads: `renew_deadline_s + write_s < lease_s`. After a pause of the
   process (SIGSTOP, a busy loop) the fence is right at once, before any timer ran: timers come too
   late.
5. When the deadline passes the work is cancelled and waited for. Nothing is taken again before.
6. When `lead` is cancelled or the work ends, the Lease is renewed until the work has ended, the
   fence is shut and every write was answered or is `write_s` old. Then the Lease is released, so
   that the next one need not wait for it to run out.
7. A fence that was shut never holds again: what a former term left running cannot write. Work that
   ends with `LeaseLost`, also as a group of nothing else, has lost the lead: it is followed again.
8. A Lease that is missing, or that was never held, may have been deleted under a living leader. A
   process that makes or takes such a Lease acts only after `lease_s`. A leader whose Lease is
   deleted makes it again and goes on, provided that is answered before its fence would have fallen.
9. An API that fails or throttles for less than the deadline changes nothing. Forbidden ends `lead`
   and names the missing permission; a process that was allowed before waits for `lease_s` first,
   for an API server that starts refuses everything until it has read the roles.

What it cannot do: a process that is stopped between asking the fence and sending, or whose request
lies in the network for longer than `lease_s - renew_deadline_s`, writes late. Only the API server
can refuse that: let writes carry a uid or resourceVersion where doing them twice would hurt.
To empty the holder of a Lease by hand is to say that no process acts.

The monotonic clock must count the time a machine is suspended (CLOCK_BOOTTIME on Linux): others go
on meanwhile.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from trainer_kai.errors import InvariantError
from trainer_kai.kube.leader.lease import Fence, LeaderTerm, LeaseLost, LeaseRecord
from trainer_kai.kube.leader.lease_client import LeaseClient, WrittenLease
from trainer_kai.kube.leader.renew import LeaseRenewer
from trainer_kai.kube.process.tasks import cancel_all, errors_if_all_are, finish_within
from trainer_kai.kube.rest.errors import ApiError, Conflict, Forbidden, is_retryable

__all__ = ["LeaderElector", "LeaderWork"]

LeaderWork = Callable[[Fence], Awaitable[None]]

_JITTER: Final = 0.2  # of a pause: followers do not all look at once


class _Leadership(NamedTuple):
    """What must come to an end in order."""

    term: LeaderTerm
    fence: Fence
    working: asyncio.Task[None]
    renewing: asyncio.Task[None]


class LeaderElector:
    """One candidate for one Lease; no other process may ever use the same identity."""

    def __init__(
        self,
        lease_client: LeaseClient,
        log: FilteringBoundLogger,
        *,
        on_leading: Callable[[bool], None] = lambda _: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Stand for election; *on_leading* is called whenever leading begins and ends."""
        self._lease_client = lease_client
        self._clock = lease_client.clock
        self._timing = lease_client.timing
        self._log = log.bind(identity=lease_client.identity)
        self._on_leading = on_leading
        self._jitter = jitter
        self._observed: LeaseRecord | None = None  # as it was last read or written
        self._observed_s = 0.0  # when it was first seen like that
        self._settled_acquire_time = ""  # when we acquired the Lease that we may lead with at once
        self._term: LeaderTerm | None = None
        self._forbidden_s: float | None = None  # since when we may not, though we might before

    @property
    def holder(self) -> str:
        """Return the holder of the Lease as far as we know, "" for none."""
        return self._observed.holder if self._observed else ""

    async def lead(self, work: LeaderWork) -> None:
        """Follow until the Lease is ours, run the work, and begin again when the lead is lost."""
        while True:
            self._term = await self._acquire()
            if await self._run_term(self._term, work):
                return

    async def _acquire(self) -> LeaderTerm:
        """Wait until the Lease is ours."""
        while True:
            pause_s = self._pause_s()
            try:
                term = await self._try_acquire()
                self._forbidden_s = None
                if term is not None:
                    return term
            except Conflict:
                self._log.debug("somebody else was first")
            except ApiError as error:
                if not (is_retryable(error) or self._is_newly_forbidden(error)):
                    raise
                self._log.warning("lease not read or not taken", error=str(error))
                pause_s = max(pause_s, error.retry_after_s or 0)
            await self._clock.sleep(pause_s)

    def _is_newly_forbidden(self, error: ApiError) -> bool:
        """Say whether we were allowed before, and have not been refused for long.

        An API server that starts refuses everything until it has read the roles.
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
                # even if no answer comes: only this version goes
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
        """Say whether no process can be leading once this very version is written over."""
        if current.holder == self._lease_client.identity:
            return current.acquired == self._settled_acquire_time
        return current.renewed != ""

    def _begin_term(self, written: WrittenLease, *, is_settled: bool) -> LeaderTerm | None:
        record, sent_s = written
        self._observe(record)
        now_s = self._clock.monotonic_s()
        until_s = sent_s + self._timing.renew_deadline_s
        if now_s >= until_s:
            return None  # too late an answer: the next look finds our name
        if is_settled:
            return LeaderTerm(record, until_s)
        self._log.info("lease has no past", acts_after_s=self._timing.lease_s)
        return LeaderTerm(record, until_s, settles_after_s=now_s + self._timing.lease_s)

    async def _run_term(self, term: LeaderTerm, work: LeaderWork) -> bool:
        """Lead until the term or the work is over; say whether it was the work."""
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
            renewing.result()  # raises what made renewing hopeless
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
        """End the work, shut the fence, let writes come to rest, give the Lease back: in order.

        Until all that is done the Lease is renewed, if it can be. A second
        cancellation leaves it to run out.
        """
        still_running: set[asyncio.Task[None]] = {leadership.working}
        is_ours = False
        try:
            leadership.working.cancel()
            still_running = await finish_within(
                self._clock, self._timing.lease_s, [leadership.working]
            )
            leadership.term.writes_stopped = True
            if leadership.term.is_settled and not still_running:
                await self._clock.sleep(leadership.fence.writes_end_s - self._clock.monotonic_s())
                is_ours = leadership.term.remaining_s(self._clock.monotonic_s()) > 0
        finally:
            leadership.term.end()
            await cancel_all({leadership.working, leadership.renewing} - still_running)
        if still_running:
            message = "the leading task did not end although it was cancelled"
            raise InvariantError(message)
        if is_ours and leadership.term.record is not None:
            await self._release(leadership.term.record)

    async def _release(self, record: LeaseRecord) -> None:
        try:
            await self._lease_client.release(record)
        except Conflict:
            self._log.debug("lease changed while it was released")
            await self._release_again(record)
        except ApiError as error:
            self._log.warning("lease not released", error=str(error))

    async def _release_again(self, record: LeaseRecord) -> None:
        """Release the version that a renewal under way may have made."""
        try:
            current = await self._lease_client.read(self._timing.request_s)
            if current and (current.holder, current.acquired) == (record.holder, record.acquired):
                await self._lease_client.release(current)
        except ApiError as error:
            self._log.warning("lease not released", error=str(error))

    def _observe(self, record: LeaseRecord | None) -> None:
        """Remember since when, on our clock, the Lease is what it is."""
        if record == self._observed:
            return
        if record is not None and record.holder != self.holder:
            self._log.info("leader changed", leader=record.holder)
        self._observed = record
        self._observed_s = self._clock.monotonic_s()

    def _pause_s(self) -> float:
        return self._timing.retry_s * (1 + _JITTER * self._jitter())
