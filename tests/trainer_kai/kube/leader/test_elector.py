"""Elections among processes whose time, network and Lease belong to the test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.lease_server import TIMING, Candidate, LeaseServer, Network
from trainer_kai.errors import InvariantError
from trainer_kai.kube.leader.lease import Fence, LeaseLost, LeaseRecord
from trainer_kai.kube.rest.response import Forbidden


class ElectionHarness:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = LeaseServer()
        self.server.create(LeaseRecord("", 1, "", "2025-12-31T00:00:00.000000Z", 3))
        self.candidates: list[Candidate] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add_candidate(self, name: str) -> Candidate:
        candidate = Candidate(name, self.server, self.clock, TIMING)
        self.candidates.append(candidate)
        return candidate

    async def led_by(self, name: str, *others: str) -> tuple[Candidate, ...]:
        first = self.add_candidate(name)
        await self.clock.advance(1)
        assert first.holds
        rest = [self.add_candidate(other) for other in others]
        await self.clock.advance(1)
        return first, *rest

    async def until_held_by(self, candidate: Candidate, limit_s: float = 60) -> float:
        """Return how long it takes until a candidate leads, in quarters of a second."""
        began_s = self.clock.monotonic_s()
        while not candidate.holds:
            assert self.clock.monotonic_s() - began_s < limit_s, "nobody took over"
            assert sum(other.holds for other in self.candidates) <= 1
            await self.clock.advance(0.25)
        return self.clock.monotonic_s() - began_s

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for candidate in self.candidates:
            await candidate.end()


@pytest.fixture
async def election() -> AsyncIterator[ElectionHarness]:
    """Return an election whose candidates end with the test: they wait on a clock that it moves."""
    made = ElectionHarness()
    yield made
    await made.end()


async def test_one_leads_and_the_others_know_who(election: ElectionHarness) -> None:
    """A free Lease is taken at once; the holder is written and seen by all."""
    a, b = await election.led_by("a", "b")
    await election.clock.advance(100)

    assert (a.elector.holder, b.elector.holder) == ("a", "a")
    assert election.server.record == LeaseRecord(
        "a", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:01:42.000000Z", 4, "53"
    )
    assert (a.leadership_changes, b.writes) == ([(0, True)], [])


async def test_a_dead_leader_is_followed_after_the_lease(election: ElectionHarness) -> None:
    """Not before its last renewal is as old as the lease, and at the next look then."""
    a, b = await election.led_by("a", "b")
    await election.clock.advance(0.5)  # a renewed at 2.0
    a.kill()

    took_s = await election.until_held_by(b)

    assert 15 - 0.5 <= took_s <= 15 + 2 * TIMING.retry_s
    assert election.server.record is not None
    assert (election.server.record.holder, election.server.record.transitions) == ("b", 5)


async def test_a_leader_that_stops_hands_over(election: ElectionHarness) -> None:
    """The Lease is given back once the work has ended, and the next look takes it."""
    a, b = await election.led_by("a", "b")
    a.running.cancel()

    took_s = await election.until_held_by(b)

    assert a.running.cancelled()
    assert took_s <= TIMING.retry_s
    released = next(
        record for record in election.server.writes if record.transitions == 4 and not record.holder
    )
    assert released.duration_s == 1


async def test_a_frozen_leader_wakes_up_fenced(election: ElectionHarness) -> None:
    """It runs again before any of its timers: the fence knows by the clock alone."""
    a, b = await election.led_by("a", "b")
    a.host.freeze()
    await election.until_held_by(b)
    await election.clock.advance(5)
    acts = len(a.writes)

    a.host.thaw()
    await election.clock.advance(30)

    assert len(a.writes) == acts
    assert a.writes[-1][0] < b.writes[0][0]
    assert a.leadership_changes[1][1] is False  # its work was cancelled
    assert (b.holds, a.elector.holder) == (True, "b")


async def test_a_pause_shorter_than_the_deadline_changes_nothing(election: ElectionHarness) -> None:
    """Waking in time, it renews and goes on; no other took over."""
    a, b = await election.led_by("a", "b")
    a.host.freeze()
    await election.clock.advance(7.5)
    a.host.thaw()
    await election.clock.advance(60)

    assert (a.holds, b.writes, a.leadership_changes) == (True, [], [(0, True)])


async def test_the_fence_counts_from_before_the_request(election: ElectionHarness) -> None:
    """A renewal that took three seconds to be answered is three seconds old already."""
    (a,) = await election.led_by("a")  # at 2.0 s
    a.host.network = Network(request_delay_s=0.25, answer_delay_s=2.75)
    await election.clock.advance(2.5)  # renewal sent at 4.0
    a.host.network = Network(lose_requests=True)
    await election.clock.advance(9.25)  # 13.75

    before = a.holds
    await election.clock.advance(0.25)

    assert (before, a.holds) == (True, False)


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365])
async def test_no_wall_clock_decides_anything(election: ElectionHarness, hours: int) -> None:
    """Dates that jump, here or there, neither end a lease nor make it longer."""
    a, b = await election.led_by("a", "b")
    a.host.date_jump = timedelta(hours=hours)
    await election.clock.advance(60)
    b.host.date_jump = timedelta(hours=-2 * hours)
    await election.clock.advance(60)
    undisturbed = (a.holds, len(b.writes), len(a.leadership_changes))
    a.kill()

    took_s = await election.until_held_by(b)

    assert undisturbed == (True, 0, 1)
    assert 15 - 2 <= took_s <= 15 + 2 * TIMING.retry_s


async def test_a_date_that_stands_still_renews_all_the_same(election: ElectionHarness) -> None:
    """A renewal always changes the Lease; otherwise followers would not see it."""
    a, b = await election.led_by("a", "b")
    for second in range(1, 60):
        a.host.date_jump = timedelta(seconds=-second)
        await election.clock.advance(1)

    assert (a.holds, b.writes) == (True, [])


async def test_an_outage_within_the_deadline_changes_nothing(election: ElectionHarness) -> None:
    """The API server is away for eight seconds."""
    a, b = await election.led_by("a", "b")
    for candidate in (a, b):
        candidate.host.network = Network(refuse=True)
    await election.clock.advance(8)
    for candidate in (a, b):
        candidate.host.network = Network()
    await election.clock.advance(60)

    assert (a.holds, b.writes, a.leadership_changes) == (True, [], [(0, True)])


async def test_an_outage_past_the_deadline_ends_leading_and_not_the_process(
    election: ElectionHarness,
) -> None:
    """The work is cancelled at the deadline, and runs again when the API server is back."""
    (a,) = await election.led_by("a")  # renewed at 2.0
    a.host.network = Network(refuse=True)
    await election.clock.advance(60)
    a.host.network = Network()
    await election.clock.advance(3)

    assert [is_leader for _, is_leader in a.leadership_changes] == [True, False, True]
    assert 10 <= a.leadership_changes[1][0] <= 12
    assert (a.holds, len(a.fences), a.fences[0].is_open) == (True, 2, False)


async def test_lost_answers_do_not_lose_the_lead(election: ElectionHarness) -> None:
    """A renewal that was carried out without our knowing makes the next one a conflict."""
    a, b = await election.led_by("a", "b")
    a.host.network = Network(lose_answers=True)
    await election.clock.advance(5)
    a.host.network = Network()
    await election.clock.advance(60)

    assert (a.holds, b.writes, a.leadership_changes) == (True, [], [(0, True)])


async def test_a_label_that_changes_is_no_other_leader(election: ElectionHarness) -> None:
    """A version that is not ours makes us look, and go on."""
    a, b = await election.led_by("a", "b")
    for _ in range(10):
        election.server.touch()
        await election.clock.advance(3)

    assert (a.holds, b.writes, a.leadership_changes) == (True, [], [(0, True)])


async def test_a_longer_lease_of_the_holder_is_respected(election: ElectionHarness) -> None:
    """Its holder may count on what it wrote."""
    election.server.update(LeaseRecord("other", 60, "", "2026-01-01T00:00:00.000000Z", 4), str(1))
    b = election.add_candidate("b")

    assert 60 <= await election.until_held_by(b, 120) <= 60 + 2 * TIMING.retry_s


async def test_a_lease_that_is_missing_is_made_and_waited_for(election: ElectionHarness) -> None:
    """It may have been deleted under a leader that does not know it yet."""
    election.server.delete()
    a = election.add_candidate("a")

    took_s = await election.until_held_by(a)

    assert 15 <= took_s <= 15 + 2 * TIMING.retry_s
    assert election.server.writes[1].holder == "a"  # before that


async def test_a_lease_deleted_under_its_leader_is_made_again(election: ElectionHarness) -> None:
    """The leader goes on, and a faster candidate waits long enough to do no harm."""
    a, b = await election.led_by("a", "b")
    election.server.delete()
    for _ in range(4 * 60):
        await election.clock.advance(0.25)
        assert not (a.holds and b.holds)

    assert a.holds or b.holds
    assert election.server.record is not None
    assert election.server.record.holder == ("a" if a.holds else "b")


async def test_the_next_one_waits_until_the_work_has_ended(election: ElectionHarness) -> None:
    """Work that takes its time to stop is renewed for, may write, and is released after."""
    ended: list[tuple[float, bool]] = []

    async def work(fence: Fence) -> None:
        try:
            await election.clock.sleep(1000)
        finally:
            await election.clock.sleep(12)
            ended.append((election.clock.monotonic_s(), fence.is_open))

    a = election.add_candidate("a")
    a.running.cancel()
    running = election.run(a.elector.lead(work))
    await election.clock.advance(1)
    b = election.add_candidate("b")
    running.cancel()

    took_s = await election.until_held_by(b)

    assert ended == [(13, True)]
    assert 12 <= took_s <= 12 + TIMING.retry_s


async def test_work_that_does_not_end_is_our_own_mistake(election: ElectionHarness) -> None:
    """It is cancelled, with twice the time it needs; then the process ends, and it with it."""
    stubborn = asyncio.Event()

    async def work(_: Fence) -> None:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    a = election.add_candidate("a")
    a.running.cancel()
    running = election.run(a.elector.lead(work))
    await election.clock.advance(1)
    running.cancel()
    await election.clock.advance(20)

    with pytest.raises(InvariantError, match="did not end"):
        await running
    stubborn.set()


async def test_how_the_work_ends_is_how_leading_ends(election: ElectionHarness) -> None:
    """Its error comes out, after the Lease is given back; a fence that stopped it does not."""
    a = election.add_candidate("a")
    a.running.cancel()
    await election.clock.advance(0)
    fences: list[Fence] = []

    async def work(fence: Fence) -> None:
        fences.append(fence)
        if len(fences) == 1:
            raise LeaseLost
        if len(fences) == 2:
            raise ValueError("no")

    first = election.run(a.elector.lead(work))
    await election.clock.advance(10)
    with pytest.raises(ValueError, match="no"):
        await first
    assert election.server.record is not None
    assert (len(fences), election.server.record.holder) == (2, "")
    await asyncio.wait_for(a.elector.lead(work), 60)

    assert (len(fences), election.server.record.holder) == (3, "")
    assert not any(fence.is_open for fence in fences)


def writes(*errors: Exception) -> Exception:
    """Return what a TaskGroup makes of the errors of its tasks."""
    return ExceptionGroup("", [*errors])


# how the work ends -> whether that is the end of leading
GROUPS: list[Case[Exception, bool]] = [
    Case("two writes of one group", writes(LeaseLost(), LeaseLost()), want=False),
    Case("a group in a group", writes(writes(LeaseLost())), want=False),
    Case("and a mistake", writes(LeaseLost(), ValueError("no")), want=True),
]


@pytest.mark.parametrize("case", GROUPS, ids=ids)
async def test_a_fence_that_stops_a_group_of_tasks(
    election: ElectionHarness, case: Case[Exception, bool]
) -> None:
    """Work with a TaskGroup follows again as other work does; no mistake is lost with that."""
    a = election.add_candidate("a")
    a.running.cancel()
    await election.clock.advance(0)
    times = 0

    async def work(_: Fence) -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise case.given

    running = election.run(a.elector.lead(work))
    await election.clock.advance(20)

    assert running.exception() is (case.given if case.want else None)
    assert times == (1 if case.want else 2)


async def test_what_waiting_does_not_help_ends_it(election: ElectionHarness) -> None:
    """All report it: leaders of before after a whole lease, a new candidate at once."""
    a, b = await election.led_by("a", "b")
    c = election.add_candidate("c")
    a.host.network = Network(forbid_writes=True)
    b.host.network = c.host.network = Network(forbid_reads=True)
    await election.clock.advance(0)
    assert c.running.done()
    await election.clock.advance(TIMING.lease_s)
    assert not a.running.done()
    assert not b.running.done()
    await election.clock.advance(2 * TIMING.retry_s)
    assert b.running.done()
    await election.clock.advance(60)

    for candidate in (a, b, c):
        with pytest.raises(Forbidden):
            await candidate.running
    assert not a.holds


async def test_refusals_with_a_look_between_them_end_nothing(election: ElectionHarness) -> None:
    """Each time an API server starts it refuses for a while; the next time counts from anew."""
    _, b = await election.led_by("a", "b")
    for _ in range(5):
        b.host.network = Network(forbid_reads=True)
        await election.clock.advance(10)
        b.host.network = Network()
        await election.clock.advance(10)

    assert not b.running.done()
