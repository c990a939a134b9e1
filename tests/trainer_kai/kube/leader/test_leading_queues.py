"""A leader whose work is a queue: whatever its calls wait for, it ends, and may lead again."""

import asyncio

import pytest
import structlog

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.lease_server import TIMING, Host, LeaseServer, Network
from trainer_kai.kube.leader.elector import LeaderElector
from trainer_kai.kube.leader.lease import Fence, LeaseClient, LeaseRecord, LeaseTiming
from trainer_kai.kube.workqueue import WorkQueue, WorkQueueSettings

# how short a Lease is -> how often its holder leads when it is lost and found again
TIMINGS: list[Case[LeaseTiming, int]] = [
    Case("the usual one", TIMING, want=2),
    Case("the shortest that there is", LeaseTiming(1, 0.6, 0.2, 0.3), want=2),
]


@pytest.mark.parametrize("case", TIMINGS, ids=ids)
async def test_a_call_without_an_answer_ends_with_the_term(case: Case[LeaseTiming, int]) -> None:
    """An API server that comes back answers late; the process must outlive that."""
    clock, server, log = VirtualClock(), LeaseServer(), structlog.get_logger()
    server.create(LeaseRecord("", 1, "", "2025-12-31T00:00:00.000000Z", 3))
    host = Host(server, clock)
    terms: list[Fence] = []

    async def never(_: str) -> None:
        await asyncio.Event().wait()

    async def work(fence: Fence) -> None:
        terms.append(fence)
        queue = WorkQueue(never, WorkQueueSettings("calls"), clock, log)
        queue.add("one")
        await queue.run()

    elector = LeaderElector(LeaseClient(host, "a", case.given, host), log, jitter=lambda: 0.0)
    leading = asyncio.create_task(elector.lead(work))
    await clock.advance(1)
    host.network = Network(refuse=True)
    await clock.advance(case.given.lease_s)
    assert not terms[0].is_open
    host.network = Network()
    await clock.advance(3 * case.given.lease_s)

    assert (leading.done(), len(terms), terms[-1].is_open) == (False, case.want, True)
    leading.cancel()
    await clock.advance(case.given.lease_s)
    assert leading.cancelled()
