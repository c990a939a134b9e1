"""Elections in any weather: at no moment may two act, and in the end one must.

Processes are frozen and killed, requests lost and late, dates jump, somebody deletes the Lease.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.clock import VirtualClock
from tests.support.fakes.lease_server import TIMING, Candidate, LeaseServer, Network
from tests.support.size import examples
from trainer_kai.kube.leader.lease import LeaseRecord

TICK_S = 0.5
CALM_S = 2 * TIMING.lease_s + 6 * TIMING.retry_s  # the old leader's lease, and that of a new Lease


@dataclass(frozen=True)
class TimePasses:
    seconds: float


@dataclass(frozen=True)
class Disturbance:
    """Something happens to one of the candidates, or to the Lease."""

    what: str
    to: int = 0
    network: Network | None = None
    hours: int = 0


DELAYS_S = st.sampled_from([0.0, 0.1, 1.5, 4.0, 9.5, 20.0])
NETWORKS = st.builds(
    Network,
    request_delay_s=DELAYS_S,
    answer_delay_s=DELAYS_S,
    lose_requests=st.booleans(),
    lose_answers=st.booleans(),
    refuse=st.booleans(),
)
CANDIDATES = st.integers(0, 2)
STEPS = st.one_of(
    st.builds(TimePasses, st.sampled_from([0.5, 1.0, 2.5, 5.0, 9.5, 10.5, 16.0, 20.0])),
    st.builds(Disturbance, st.sampled_from(["freeze", "thaw", "thaw", "kill", "stop"]), CANDIDATES),
    st.builds(Disturbance, st.just("network"), CANDIDATES, NETWORKS | st.just(Network())),
    st.builds(Disturbance, st.just("jump"), CANDIDATES, hours=st.sampled_from([-1, 1, 1000])),
    st.builds(Disturbance, st.sampled_from(["delete", "touch"])),
)


class DisturbedElection:
    """Three candidates, whoever replaces those that end, and what must never be."""

    def __init__(self, *, has_past: bool) -> None:
        self.clock = VirtualClock()
        self.server = LeaseServer()
        if has_past:
            self.server.create(LeaseRecord("", 1, "", "2025-12-31T00:00:00.000000Z", 3))
        self._names = itertools.count()
        self.all_candidates: list[Candidate] = []
        self.candidates = [self._add_candidate() for _ in range(3)]
        self.leaders: list[str] = []  # when time last passed

    def _add_candidate(self) -> Candidate:
        candidate = Candidate(f"c{next(self._names)}", self.server, self.clock, TIMING)
        candidate.write_s = TIMING.write_s
        self.all_candidates.append(candidate)
        return candidate

    async def run_steps(self, steps: Sequence[TimePasses | Disturbance]) -> None:
        for step in steps:
            if isinstance(step, TimePasses):
                await self.pass_time(step.seconds)
            else:
                self._disturb(step)

    def _disturb(self, step: Disturbance) -> None:
        candidate = self.candidates[step.to]
        match step.what:
            case "freeze":
                candidate.host.freeze()
            case "thaw":
                candidate.host.thaw()
            case "network":
                candidate.host.network = step.network or Network()
            case "jump":
                candidate.host.date_jump += timedelta(hours=step.hours)
            case "kill":
                candidate.kill()
                self.candidates[step.to] = self._add_candidate()
            case "stop":
                candidate.running.cancel()
                self.candidates[step.to] = self._add_candidate()
            case "delete":
                self.server.delete()
            case "touch":
                self.server.touch()

    async def pass_time(self, seconds: float) -> None:
        """Look at every half second whether two could write."""
        for _ in range(round(seconds / TICK_S)):
            await self.clock.advance(TICK_S)
            assert len(self.holders) <= 1
        self.leaders = self.holders

    @property
    def holders(self) -> list[str]:
        return [candidate.name for candidate in self.all_candidates if candidate.holds]

    def check_acts(self) -> None:
        """Each act was over before anyone else sent one."""
        acts = sorted((*act, c.name) for c in self.all_candidates for act in c.writes)
        for (_, over_s, name), (sent_s, _, next_name) in itertools.pairwise(acts):
            assert name == next_name or over_s <= sent_s

    async def recover(self) -> None:
        for candidate in self.candidates:
            candidate.host.network = Network()
            candidate.host.thaw()
        await self.pass_time(20)  # what is still under way
        await self.pass_time(CALM_S)

    async def end(self) -> None:
        for candidate in self.all_candidates:
            candidate.running.cancel()
            candidate.host.thaw()
        await self.clock.advance(100)
        for candidate in self.all_candidates:
            await candidate.end()


@given(st.lists(STEPS, max_size=30), st.booleans())
@example(
    [
        TimePasses(3),
        Disturbance("freeze", 0),
        TimePasses(20),
        Disturbance("thaw", 0),
        TimePasses(5),
    ],
    True,
)
@example(
    [TimePasses(3), Disturbance("delete"), TimePasses(0.5), Disturbance("delete"), TimePasses(20)],
    True,
)
@example([TimePasses(3), Disturbance("stop", 0), TimePasses(5)], True)
@settings(max_examples=examples(15))
async def test_never_two_and_in_the_end_one(
    steps: list[TimePasses | Disturbance], has_past: bool
) -> None:
    """Whatever happens in whatever order: no two fences hold, no write is late, one leads."""
    election = DisturbedElection(has_past=has_past)
    try:
        await election.run_steps(steps)
        await election.recover()
        leaders = election.holders
        await election.pass_time(TIMING.lease_s)
    finally:
        await election.end()

    assert len(leaders) == 1
    assert election.leaders == leaders
    election.check_acts()
