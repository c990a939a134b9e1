"""Elections among processes whose time, network and Lease belong to the test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.leases import TIMING, Candidate, LeaseServer, Network
from trainer_kai.errors import InvariantError
from trainer_kai.kube.errors import Forbidden
from trainer_kai.kube.lease import Fence, LeaseLost, LeaseRecord


class Town:
    """One Lease and its candidates."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = LeaseServer()
        self.server.create(LeaseRecord("", 1, "", "2025-12-31T00:00:00.000000Z", 3))
        self.candidates: list[Candidate] = []
        self._others: list[asyncio.Task[None]] = []

    def enter(self, name: str) -> Candidate:
        """Let somebody stand for election."""
        candidate = Candidate(name, self.server, self.clock, TIMING)
        self.candidates.append(candidate)
        return candidate

    async def led_by(self, name: str, *others: str) -> tuple[Candidate, ...]:
        """Let one lead and the others follow."""
        first = self.enter(name)
        await self.clock.advance(1)
        assert first.holds
        rest = [self.enter(other) for other in others]
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
        """Run something that must not outlive the test."""
        task = asyncio.create_task(work)
        self._others.append(task)
        return task

    async def end(self) -> None:
        """Clean up, whatever came of the test."""
        for task in self._others:
            task.cancel()
        for candidate in self.candidates:
            await candidate.end()


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    """Return a town whose candidates end with the test: they wait on a clock that it moves."""
    made = Town()
    yield made
    await made.end()


async def test_one_leads_and_the_others_know_who(town: Town) -> None:
    """A free Lease is taken at once; who holds it is written and seen by all."""
    a, b = await town.led_by("a", "b")
    await town.clock.advance(100)

    assert (a.elector.leads, b.elector.leads) == (True, False)
    assert (a.elector.leader, b.elector.leader) == ("a", "a")
    assert town.server.record == LeaseRecord(
        "a", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:01:42.000000Z", 4, "53"
    )
    assert (a.told, b.acts) == ([(0, True)], [])


async def test_a_dead_leader_is_followed_after_the_lease(town: Town) -> None:
    """Not before its last renewal is as old as the lease, and at the next look then."""
    a, b = await town.led_by("a", "b")
    await town.clock.advance(0.5)  # a renewed at 2.0
    a.kill()

    took_s = await town.until_held_by(b)

    assert 15 - 0.5 <= took_s <= 15 + 2 * TIMING.retry_s
    assert town.server.record is not None
    assert (town.server.record.holder, town.server.record.transitions) == ("b", 5)


async def test_a_leader_that_stops_hands_over(town: Town) -> None:
    """The Lease is given back once the work has ended, and the next look takes it."""
    a, b = await town.led_by("a", "b")
    a.running.cancel()

    took_s = await town.until_held_by(b)

    assert a.running.cancelled()
    assert took_s <= TIMING.retry_s
    released = next(
        record for record in town.server.writes if record.transitions == 4 and not record.holder
    )
    assert released.duration_s == 1


async def test_a_frozen_leader_wakes_up_fenced(town: Town) -> None:
    """It runs again before any of its timers: the fence knows by the clock alone."""
    a, b = await town.led_by("a", "b")
    a.host.freeze()
    await town.until_held_by(b)
    await town.clock.advance(5)
    acts = len(a.acts)

    a.host.thaw()
    await town.clock.advance(30)

    assert len(a.acts) == acts
    assert a.acts[-1][0] < b.acts[0][0]
    assert a.told[1][1] is False  # its work was cancelled
    assert (b.holds, a.elector.leader) == (True, "b")


async def test_a_pause_shorter_than_the_deadline_changes_nothing(town: Town) -> None:
    """Waking in time, it renews and goes on; nobody took over."""
    a, b = await town.led_by("a", "b")
    a.host.freeze()
    await town.clock.advance(7.5)
    a.host.thaw()
    await town.clock.advance(60)

    assert (a.holds, b.acts, a.told) == (True, [], [(0, True)])


async def test_the_fence_counts_from_before_the_request(town: Town) -> None:
    """A renewal that took three seconds to be answered is three seconds old already."""
    (a,) = await town.led_by("a")  # at 2.0 s
    a.host.network = Network(there_s=0.25, back_s=2.75)
    await town.clock.advance(2.5)  # renewal sent at 4.0
    a.host.network = Network(lose_requests=True)
    await town.clock.advance(9.25)  # 13.75

    before = a.holds
    await town.clock.advance(0.25)

    assert (before, a.holds) == (True, False)


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365])
async def test_no_wall_clock_decides_anything(town: Town, hours: int) -> None:
    """Dates that jump, here or there, neither end a lease nor make it longer."""
    a, b = await town.led_by("a", "b")
    a.host.date_jump = timedelta(hours=hours)
    await town.clock.advance(60)
    b.host.date_jump = timedelta(hours=-2 * hours)
    await town.clock.advance(60)
    undisturbed = (a.holds, len(b.acts), len(a.told))
    a.kill()

    took_s = await town.until_held_by(b)

    assert undisturbed == (True, 0, 1)
    assert 15 - 2 <= took_s <= 15 + 2 * TIMING.retry_s


async def test_a_date_that_stands_still_renews_all_the_same(town: Town) -> None:
    """A renewal always changes the Lease; otherwise nobody would see it."""
    a, b = await town.led_by("a", "b")
    for second in range(1, 60):
        a.host.date_jump = timedelta(seconds=-second)
        await town.clock.advance(1)

    assert (a.holds, b.acts) == (True, [])


async def test_an_outage_within_the_deadline_changes_nothing(town: Town) -> None:
    """The API server is away for eight seconds."""
    a, b = await town.led_by("a", "b")
    for candidate in (a, b):
        candidate.host.network = Network(refuse=True)
    await town.clock.advance(8)
    for candidate in (a, b):
        candidate.host.network = Network()
    await town.clock.advance(60)

    assert (a.holds, b.acts, a.told) == (True, [], [(0, True)])


async def test_an_outage_past_the_deadline_ends_leading_and_not_the_process(town: Town) -> None:
    """The work is cancelled at the deadline, and runs again when the API server is back."""
    (a,) = await town.led_by("a")  # renewed at 2.0
    a.host.network = Network(refuse=True)
    await town.clock.advance(60)
    a.host.network = Network()
    await town.clock.advance(3)

    assert [leads for _, leads in a.told] == [True, False, True]
    assert 10 <= a.told[1][0] <= 12
    assert (a.holds, len(a.fences), a.fences[0].lets_through) == (True, 2, False)


async def test_lost_answers_do_not_lose_the_lead(town: Town) -> None:
    """A renewal that was carried out without our knowing makes the next one a conflict."""
    a, b = await town.led_by("a", "b")
    a.host.network = Network(lose_answers=True)
    await town.clock.advance(5)
    a.host.network = Network()
    await town.clock.advance(60)

    assert (a.holds, b.acts, a.told) == (True, [], [(0, True)])


async def test_a_label_that_changes_is_no_other_leader(town: Town) -> None:
    """A version that is not ours makes us look, and go on."""
    a, b = await town.led_by("a", "b")
    for _ in range(10):
        town.server.touch()
        await town.clock.advance(3)

    assert (a.holds, b.acts, a.told) == (True, [], [(0, True)])


async def test_a_longer_lease_of_the_holder_is_respected(town: Town) -> None:
    """Whoever holds it may count on what it wrote."""
    town.server.update(LeaseRecord("other", 60, "", "2026-01-01T00:00:00.000000Z", 4), str(1))
    b = town.enter("b")

    assert 60 <= await town.until_held_by(b, 120) <= 60 + 2 * TIMING.retry_s


async def test_a_lease_that_is_missing_is_made_and_waited_for(town: Town) -> None:
    """It may have been deleted under a leader who does not know it yet."""
    town.server.delete()
    a = town.enter("a")

    took_s = await town.until_held_by(a)

    assert 15 <= took_s <= 15 + 2 * TIMING.retry_s
    assert town.server.writes[1].holder == "a"  # before that


async def test_a_lease_deleted_under_its_leader_is_made_again(town: Town) -> None:
    """The leader goes on, and whoever was faster waits long enough to do no harm."""
    a, b = await town.led_by("a", "b")
    town.server.delete()
    for _ in range(4 * 60):
        await town.clock.advance(0.25)
        assert not (a.holds and b.holds)

    assert a.holds or b.holds
    assert town.server.record is not None
    assert town.server.record.holder == ("a" if a.holds else "b")


async def test_the_next_one_waits_until_the_work_has_ended(town: Town) -> None:
    """Work that takes its time to stop is renewed for, may write, and is released after."""
    ended: list[tuple[float, bool]] = []

    async def work(fence: Fence) -> None:
        try:
            await town.clock.sleep(1000)
        finally:
            await town.clock.sleep(12)
            ended.append((town.clock.monotonic_s(), fence.lets_through))

    a = town.enter("a")
    a.running.cancel()
    running = town.run(a.elector.lead(work))
    await town.clock.advance(1)
    b = town.enter("b")
    running.cancel()

    took_s = await town.until_held_by(b)

    assert ended == [(13, True)]
    assert 12 <= took_s <= 12 + TIMING.retry_s


async def test_work_that_does_not_end_is_our_own_mistake(town: Town) -> None:
    """It is told to, twice as long as it needs; then the process ends, and it with it."""
    stubborn = asyncio.Event()

    async def work(_: Fence) -> None:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    a = town.enter("a")
    a.running.cancel()
    running = town.run(a.elector.lead(work))
    await town.clock.advance(1)
    running.cancel()
    await town.clock.advance(20)

    with pytest.raises(InvariantError, match="did not end"):
        await running
    stubborn.set()


async def test_how_the_work_ends_is_how_leading_ends(town: Town) -> None:
    """Its error comes out, after the Lease is given back; a fence that stopped it does not."""
    a = town.enter("a")
    a.running.cancel()
    await town.clock.advance(0)
    fences: list[Fence] = []

    async def work(fence: Fence) -> None:
        fences.append(fence)
        if len(fences) == 1:
            raise LeaseLost
        if len(fences) == 2:
            raise ValueError("no")

    first = town.run(a.elector.lead(work))
    await town.clock.advance(10)
    with pytest.raises(ValueError, match="no"):
        await first
    assert town.server.record is not None
    assert (len(fences), town.server.record.holder) == (2, "")
    await asyncio.wait_for(a.elector.lead(work), 1)

    assert (len(fences), town.server.record.holder) == (3, "")
    assert not any(fence.lets_through for fence in fences)


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
async def test_a_fence_that_stops_a_group_of_tasks(town: Town, case: Case[Exception, bool]) -> None:
    """Work with a TaskGroup follows again as other work does; no mistake is lost with that."""
    a = town.enter("a")
    a.running.cancel()
    await town.clock.advance(0)
    times = 0

    async def work(_: Fence) -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise case.given

    running = town.run(a.elector.lead(work))
    await town.clock.advance(20)

    assert running.exception() is (case.given if case.want else None)
    assert times == (1 if case.want else 2)


async def test_what_waiting_does_not_help_ends_it(town: Town) -> None:
    """RBAC that says no is said by all: after a whole lease, and at once by whoever is new."""
    a, b = await town.led_by("a", "b")
    c = town.enter("c")
    a.host.network = Network(forbid_writes=True)
    b.host.network = c.host.network = Network(forbid_reads=True)
    await town.clock.advance(0)
    assert c.running.done()
    await town.clock.advance(TIMING.lease_s)
    assert not a.running.done()
    assert not b.running.done()
    await town.clock.advance(2 * TIMING.retry_s)
    assert b.running.done()
    await town.clock.advance(60)

    for candidate in (a, b, c):
        with pytest.raises(Forbidden):
            await candidate.running
    assert not a.holds


async def test_refusals_with_a_look_between_them_end_nothing(town: Town) -> None:
    """Each time an API server starts it refuses for a while; the next time counts from anew."""
    _, b = await town.led_by("a", "b")
    for _ in range(5):
        b.host.network = Network(forbid_reads=True)
        await town.clock.advance(10)
        b.host.network = Network()
        await town.clock.advance(10)

    assert not b.running.done()
