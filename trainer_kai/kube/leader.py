"""Leader election on a Lease: of several processes at most one acts.

The contract:

1. `lead` runs the work it is given while this process is the leader, again each time it becomes the
   leader. It ends when the work ends, or when it is cancelled.
2. Nobody's wall clock decides anything. A leader counts from the moment *before* it sent the
   renewal that succeeded. A follower counts from the moment *after* it first read the Lease in its
   present version. Both use their own monotonic clock.
3. The leader's fence holds for `renew_deadline_s`. A follower takes over after `lease_s`, or after
   the duration that the holder wrote if that is longer, and only if the Lease still has the
   version that it counted for: the API server compares. So no two fences hold at once.
4. The work writes with `client.behind(fence)`: the fence is asked before each time that a write is
   sent, and each has a time-out of at most `write_s`. A write sent at the last moment is thus over
   before anyone else leads: `renew_deadline_s + write_s < lease_s`. After a pause of the process
   (SIGSTOP, a busy loop) the fence is right at once, before any timer ran: timers come too late.
5. When the deadline passes the work is cancelled and waited for. Nothing is taken again before.
6. When `lead` is cancelled or the work ends, the Lease is renewed until the work has ended, the
   fence is shut and every write was answered or is `write_s` old. Then the Lease is released, so
   that the next one need not wait for it to run out.
7. A fence that was shut never holds again: what a former term left running cannot write. Work that
   ends with `LeaseLost`, also as a group of nothing else, has lost the lead: it is followed again.
8. A Lease that is missing, or that nobody ever held, may have been deleted under a living leader.
   Whoever makes or takes such a Lease acts only after `lease_s`. A leader whose Lease is deleted
   makes it again and goes on, provided that is answered before its fence would have fallen.
9. An API that fails or throttles for less than the deadline changes nothing. Forbidden ends `lead`
   and names the missing permission; who was allowed before waits for `lease_s` first, for an API
   server that starts refuses everything until it has read the roles.

What it cannot do: a process that is stopped between asking the fence and sending, or whose request
lies in the network for longer than `lease_s - renew_deadline_s`, writes late. Only the API server
can refuse that: let writes carry a uid or resourceVersion where doing them twice would hurt.
Whoever empties the holder of a Lease by hand says that nobody acts, and must know it.

The monotonic clock must count the time a machine is suspended (CLOCK_BOOTTIME on Linux): others go
on meanwhile.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from trainer_kai.errors import InvariantError
from trainer_kai.kube.claim import Claim, Written
from trainer_kai.kube.errors import ApiError, Conflict, Forbidden, is_retryable
from trainer_kai.kube.groups import only
from trainer_kai.kube.lease import Fence, LeaseLost, LeaseRecord, Term
from trainer_kai.kube.patience import cancel_all, finish_within
from trainer_kai.kube.tenure import Tenure

__all__ = ["Elector", "Work"]

Work = Callable[[Fence], Awaitable[None]]

_JITTER: Final = 0.2  # of a pause: followers do not all look at once


class _Reign(NamedTuple):
    """What must come to an end in order."""

    term: Term
    fence: Fence
    working: asyncio.Task[None]
    renewing: asyncio.Task[None]


class Elector:
    """One candidate for one Lease; no other process may ever use the same identity."""

    def __init__(
        self,
        claim: Claim,
        log: FilteringBoundLogger,
        *,
        tell: Callable[[bool], None] = lambda _: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Stand for election; *tell* hears whenever leading begins and ends."""
        self._claim = claim
        self._clock = claim.clock
        self._timing = claim.timing
        self._log = log.bind(identity=claim.identity)
        self._tell = tell
        self._jitter = jitter
        self._seen: LeaseRecord | None = None  # as it was last read or written
        self._seen_s = 0.0  # when it was first seen like that
        self._settled = ""  # when we acquired the Lease that we may lead with at once
        self._term: Term | None = None
        self._forbidden_s: float | None = None  # since when we may not, though we might before

    @property
    def leader(self) -> str:
        """Return who holds the Lease as far as we know, "" for nobody."""
        return self._seen.holder if self._seen else ""

    @property
    def leads(self) -> bool:
        """Say whether this process leads, to show it; a write asks its fence."""
        return self._term is not None and self._term.allows(self._clock.monotonic_s())

    async def lead(self, work: Work) -> None:
        """Follow until it is our turn, run the work, and begin again when the lead is lost."""
        while True:
            self._term = await self._follow()
            if await self._reign(self._term, work):
                return

    async def _follow(self) -> Term:
        """Wait until the Lease is ours."""
        while True:
            pause_s = self._pause_s()
            try:
                term = await self._try_to_take()
                self._forbidden_s = None
                if term is not None:
                    return term
            except Conflict:
                self._log.debug("somebody else was first")
            except ApiError as error:
                if not (is_retryable(error) or self._is_just_forbidden(error)):
                    raise
                self._log.warning("lease not read or not taken", error=str(error))
                pause_s = max(pause_s, error.retry_after_s or 0)
            await self._clock.sleep(pause_s)

    def _is_just_forbidden(self, error: ApiError) -> bool:
        """Say whether we were allowed before, and have not been refused for long.

        An API server that starts refuses everything until it has read the roles.
        """
        if not isinstance(error, Forbidden) or self._seen is None:
            return False
        now_s = self._clock.monotonic_s()
        self._forbidden_s = now_s if self._forbidden_s is None else self._forbidden_s
        return now_s - self._forbidden_s < self._timing.lease_s

    async def _try_to_take(self) -> Term | None:
        found = await self._claim.read(self._timing.request_s)
        self._observe(found)
        if found is None or self._may_take(found):
            entry = self._claim.entry(found)
            safe = found is not None and self._is_past_known(found)
            if safe:
                self._settled = entry.acquired  # even if no answer comes: only this version goes
            written = await self._claim.write(found, entry, self._timing.request_s)
            return self._begin(written, is_settled=safe)
        return None

    def _may_take(self, found: LeaseRecord) -> bool:
        if found.holder in ("", self._claim.identity):
            return True
        lasts_s = max(self._timing.lease_s, found.duration_s)
        return self._clock.monotonic_s() >= self._seen_s + lasts_s

    def _is_past_known(self, found: LeaseRecord) -> bool:
        """Say whether nobody can be leading once this very version is written over."""
        if found.holder == self._claim.identity:
            return found.acquired == self._settled
        return found.renewed != ""

    def _begin(self, written: Written, *, is_settled: bool) -> Term | None:
        record, sent_s = written
        self._observe(record)
        now_s = self._clock.monotonic_s()
        until_s = sent_s + self._timing.renew_deadline_s
        if now_s >= until_s:
            return None  # too late an answer: the next look finds our name
        if is_settled:
            return Term(record, until_s)
        self._log.info("lease has no past", acts_after_s=self._timing.lease_s)
        return Term(record, until_s, ripe_s=now_s + self._timing.lease_s)

    async def _reign(self, term: Term, work: Work) -> bool:
        """Lead until the term or the work is over; say whether it was the work."""
        settled = asyncio.Event()

        def confirm(record: LeaseRecord) -> None:
            self._settled = record.acquired
            settled.set()

        if term.is_settled:
            settled.set()
        tenure = Tenure(
            self._claim,
            term,
            self._log,
            pause_s=self._pause_s,
            seen=self._observe,
            confirmed=confirm,
        )
        fence = Fence(term, self._timing.write_s, self._clock.monotonic_s)
        renewing = asyncio.create_task(tenure.keep(), name="renew lease")
        working = asyncio.create_task(self._act(settled, work, fence), name="lead")
        try:
            await asyncio.wait({renewing, working}, return_when=asyncio.FIRST_COMPLETED)
            finished = working.done()
        finally:
            await self._step_down(_Reign(term, fence, working, renewing))
        if not renewing.cancelled():
            renewing.result()  # raises what made renewing hopeless
        error = None if working.cancelled() else working.exception()
        if error is not None and only(LeaseLost, error) is None:
            raise error
        return finished and error is None

    async def _act(self, settled: asyncio.Event, work: Work, fence: Fence) -> None:
        await settled.wait()
        self._log.info("started leading", transitions=self._seen and self._seen.transitions)
        self._tell(True)  # noqa: FBT003 - whoever is told has one question
        try:
            await work(fence)
        finally:
            self._log.info("stopped leading")
            self._tell(False)  # noqa: FBT003 - as above

    async def _step_down(self, reign: _Reign) -> None:
        """End the work, shut the fence, let writes come to rest, give the Lease back: in order.

        Until all that is done the Lease is renewed, if it can be. Whoever insists on an end by
        cancelling again leaves it to run out.
        """
        stuck: set[asyncio.Task[None]] = {reign.working}
        is_ours = False
        try:
            reign.working.cancel()
            stuck = await finish_within(self._clock, self._timing.lease_s, [reign.working])
            reign.term.shut = True
            if reign.term.is_settled and not stuck:
                await self._clock.sleep(reign.fence.quiet_s - self._clock.monotonic_s())
                is_ours = reign.term.left_s(self._clock.monotonic_s()) > 0
        finally:
            reign.term.end()
            await cancel_all({reign.working, reign.renewing} - stuck)
        if stuck:
            message = "the leading task did not end although it was cancelled"
            raise InvariantError(message)
        if is_ours and reign.term.record is not None:
            await self._release(reign.term.record)

    async def _release(self, record: LeaseRecord) -> None:
        try:
            await self._claim.release(record)
        except Conflict:
            self._log.debug("lease changed while it was released")
            await self._release_again(record)
        except ApiError as error:
            self._log.warning("lease not released", error=str(error))

    async def _release_again(self, record: LeaseRecord) -> None:
        """Release the version that a renewal under way may have made."""
        try:
            found = await self._claim.read(self._timing.request_s)
            if found and (found.holder, found.acquired) == (record.holder, record.acquired):
                await self._claim.release(found)
        except ApiError as error:
            self._log.warning("lease not released", error=str(error))

    def _observe(self, record: LeaseRecord | None) -> None:
        """Remember since when, on our clock, the Lease is what it is."""
        if record == self._seen:
            return
        if record is not None and record.holder != self.leader:
            self._log.info("leader changed", leader=record.holder)
        self._seen = record
        self._seen_s = self._clock.monotonic_s()

    def _pause_s(self) -> float:
        return self._timing.retry_s * (1 + _JITTER * self._jitter())
