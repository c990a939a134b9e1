"""A Lease without an API server: compared versions, and a network for each process that fails.

Requests that were sent are carried out even when the client no longer waits for the answer.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Final, TypeVar

import structlog
from structlog.testing import CapturingLogger

from tests.support.clock import VirtualClock
from trainer_kai.kube.leader.elector import LeaderElector
from trainer_kai.kube.leader.lease import Fence, LeaseClient, LeaseRecord, LeaseTiming
from trainer_kai.kube.rest.response import (
    AlreadyExists,
    Conflict,
    ErrorDetails,
    Forbidden,
    NotFound,
    Unavailable,
)

TIMING: Final = LeaseTiming(lease_s=15, renew_deadline_s=10, retry_s=2, write_s=4)

A = TypeVar("A")


def _refusal(status: int, reason: str) -> ErrorDetails:
    return ErrorDetails("lease", status, reason, reason)


class LeaseServer:
    """The one Lease, as the API server has it."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.writes: list[LeaseRecord] = []
        self._versions = count(1)

    def read(self) -> LeaseRecord | None:
        """Return the newest state."""
        return self.record

    def create(self, record: LeaseRecord) -> LeaseRecord:
        """Make it."""
        if self.record is not None:
            raise AlreadyExists(_refusal(409, "AlreadyExists"))
        return self._write(record)

    def update(self, record: LeaseRecord, version: str) -> LeaseRecord:
        """Write over one version; writing what is there already changes nothing."""
        if self.record is None:
            raise NotFound(_refusal(404, "NotFound"))
        if self.record.version != version:
            raise Conflict(_refusal(409, "Conflict"))
        if record._replace(version=version) == self.record:
            return self.record
        return self._write(record)

    def touch(self) -> None:
        """Change something about it that is not ours, a label say."""
        if self.record is not None:
            self._write(self.record)

    def delete(self) -> None:
        """Take it away from its holder."""
        self.record = None

    def _write(self, record: LeaseRecord) -> LeaseRecord:
        self.record = record._replace(version=str(next(self._versions)))
        self.writes.append(self.record)
        return self.record


@dataclass
class Network:
    """What becomes of the requests of one process, from now on."""

    request_delay_s: float = 0.0
    answer_delay_s: float = 0.0
    lose_requests: bool = False
    lose_answers: bool = False
    refuse: bool = False  # at once, as a server does that is starting
    forbid_reads: bool = False  # as one does that has not read the roles, or has none for us
    forbid_writes: bool = False


class Host:
    """A process: its clocks, its network to the Lease; it can be frozen, and its date can jump."""

    def __init__(self, server: LeaseServer, clock: VirtualClock) -> None:
        self.network = Network()
        self.date_jump = timedelta()
        self.requests = 0
        self._server = server
        self._clock = clock
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._in_flight: set[asyncio.Task[None]] = set()

    # The clock of the process

    def monotonic_s(self) -> float:
        """Return the time that passes for all alike."""
        return self._clock.monotonic_s()

    def now(self) -> datetime:
        """Return the date as this process has it."""
        return self._clock.now() + self.date_jump

    async def sleep(self, seconds: float) -> None:
        """Wait, and longer while frozen."""
        await self._clock.sleep(seconds)
        await self._thawed.wait()

    def freeze(self) -> None:
        """Stop it, as SIGSTOP does: what it waits for comes, and it does not see it."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Let it go on."""
        self._thawed.set()

    # The Lease as this process reaches it

    async def read(self) -> LeaseRecord | None:
        """Ask for the newest state."""
        if self.network.forbid_reads:
            raise Forbidden(_refusal(403, "Forbidden"))
        return await self.send(self._server.read)

    async def create(self, record: LeaseRecord) -> LeaseRecord:
        """Ask for it to be made."""
        if self.network.forbid_writes:
            raise Forbidden(_refusal(403, "Forbidden"))
        return await self.send(lambda: self._server.create(record))

    async def update(self, record: LeaseRecord, version: str) -> LeaseRecord:
        """Ask for it to be written over."""
        if self.network.forbid_writes:
            raise Forbidden(_refusal(403, "Forbidden"))
        return await self.send(lambda: self._server.update(record, version))

    async def send(self, act: Callable[[], A]) -> A:
        """Have something done on the server, as the network is at this moment."""
        self.requests += 1
        network = Network(**vars(self.network))
        if network.refuse:
            raise Unavailable(_refusal(503, "starting"), was_sent=False)
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._deliver(network, act, answer))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return await answer

    async def _deliver(
        self, network: Network, act: Callable[[], A], answer: "asyncio.Future[A]"
    ) -> None:
        await self._clock.sleep(network.request_delay_s)
        if network.lose_requests:
            return
        try:
            result, error = act(), None
        except (Conflict, NotFound) as refused:
            result, error = None, refused
        await self._clock.sleep(network.answer_delay_s)
        await self._thawed.wait()
        if network.lose_answers or answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]


class Candidate:
    """A process that stands for election, and acts as often as its fence lets it."""

    def __init__(
        self, name: str, server: LeaseServer, clock: VirtualClock, timing: LeaseTiming
    ) -> None:
        self.name = name
        self.host = Host(server, clock)
        self.log = CapturingLogger()
        self.fences: list[Fence] = []
        self.writes: list[
            tuple[float, float]
        ] = []  # when each was sent, and when it was carried out
        self.leadership_changes: list[tuple[float, bool]] = []
        self.write_s = 0.0  # how long an act is under way
        self._clock = clock
        self.elector = LeaderElector(
            LeaseClient(self.host, name, timing, self.host),
            structlog.wrap_logger(self.log, processors=[]),
            on_leading=lambda leads: self.leadership_changes.append((clock.monotonic_s(), leads)),
            jitter=lambda: 0.0,
        )
        self.running = asyncio.create_task(self.elector.lead(self.write_while_leading))

    @property
    def holds(self) -> bool:
        """Say whether any fence it ever had lets a write through now."""
        return any(fence.is_open for fence in self.fences)

    async def write_while_leading(self, fence: Fence) -> None:
        """Write again and again, whenever the fence holds."""
        self.fences.append(fence)
        while True:
            now_s = self._clock.monotonic_s()
            if self.write_s and fence.is_open:
                with fence.write() as sending:
                    sending.may_still_apply = True  # no answer came
                self.writes.append((now_s, now_s + self.write_s))
            elif not self.write_s:
                with fence.write():  # answered at once
                    self.writes.append((now_s, now_s))
            await self.host.sleep(0.5)

    def kill(self) -> None:
        """End it at once: it sends nothing any more."""
        self.host.network = Network(lose_requests=True)
        self.host.freeze()
        self.fences.clear()

    async def end(self) -> None:
        """Clean up after a test."""
        self.running.cancel()
        self.host.thaw()
        self.running.cancel()
        await self._clock.advance(100)
        await asyncio.wait([self.running])
