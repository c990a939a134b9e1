"""Elections in any weather: at no moment may two act, and in the end somebody must.

Processes are frozen and killed, requests lost and late, dates jump, somebody deletes the Lease.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.clock import VirtualClock
from tests.support.leases import TIMING, Candidate, LeaseServer, Network
from tests.support.size import examples
from trainer_kai.kube.lease import LeaseRecord

TICK_S = 0.5
CALM_S = 2 * TIMING.lease_s + 6 * TIMING.retry_s  # the old leader's lease, and that of a new Lease


@dataclass(frozen=True)
class Pass:
    """Time passes."""

    seconds: float


@dataclass(frozen=True)
class Happens:
    """Something happens to one of the candidates, or to the Lease."""

    what: str
    to: int = 0
    network: Network | None = None
    hours: int = 0


DELAYS_S = st.sampled_from([0.0, 0.1, 1.5, 4.0, 9.5, 20.0])
NETWORKS = st.builds(
    Network,
    there_s=DELAYS_S,
    back_s=DELAYS_S,
    lose_requests=st.booleans(),
    lose_answers=st.booleans(),
    refuse=st.booleans(),
)
WHO = st.integers(0, 2)
STEPS = st.one_of(
    st.builds(Pass, st.sampled_from([0.5, 1.0, 2.5, 5.0, 9.5, 10.5, 16.0, 20.0])),
    st.builds(Happens, st.sampled_from(["freeze", "thaw", "thaw", "kill", "stop"]), WHO),
    st.builds(Happens, st.just("network"), WHO, NETWORKS | st.just(Network())),
    st.builds(Happens, st.just("jump"), WHO, hours=st.sampled_from([-1, 1, 1000])),
    st.builds(Happens, st.sampled_from(["delete", "touch"])),
)


class Weather:
    """Three candidates, whoever replaces those that end, and what must never be."""

    def __init__(self, *, has_past: bool) -> None:
        self.clock = VirtualClock()
        self.server = LeaseServer()
        if has_past:
            self.server.create(LeaseRecord("", 1, "", "2025-12-31T00:00:00.000000Z", 3))
        self._names = itertools.count()
        self.all: list[Candidate] = []
        self.now = [self._enter() for _ in range(3)]
        self.leaders: list[str] = []  # when time last passed

    def _enter(self) -> Candidate:
        candidate = Candidate(f"c{next(self._names)}", self.server, self.clock, TIMING)
        candidate.act_s = TIMING.write_s
        self.all.append(candidate)
        return candidate

    async def take(self, steps: Sequence[Pass | Happens]) -> None:
        """Let it all happen."""
        for step in steps:
            if isinstance(step, Pass):
                await self.pass_time(step.seconds)
            else:
                self._happen(step)

    def _happen(self, step: Happens) -> None:
        candidate = self.now[step.to]
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
                self.now[step.to] = self._enter()
            case "stop":
                candidate.running.cancel()
                self.now[step.to] = self._enter()
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
        """Return who could write now."""
        return [candidate.name for candidate in self.all if candidate.holds]

    def check_acts(self) -> None:
        """Each act was over before anyone else sent one."""
        acts = sorted((*act, c.name) for c in self.all for act in c.acts)
        for (_, over_s, name), (sent_s, _, next_name) in itertools.pairwise(acts):
            assert name == next_name or over_s <= sent_s

    async def clear_up(self) -> None:
        """Let the sun shine."""
        for candidate in self.now:
            candidate.host.network = Network()
            candidate.host.thaw()
        await self.pass_time(20)  # what is still under way
        await self.pass_time(CALM_S)

    async def end(self) -> None:
        """Clean up."""
        for candidate in self.all:
            candidate.running.cancel()
            candidate.host.thaw()
        await self.clock.advance(100)
        for candidate in self.all:
            await candidate.end()


@given(st.lists(STEPS, max_size=30), st.booleans())
@example([Pass(3), Happens("freeze", 0), Pass(20), Happens("thaw", 0), Pass(5)], True)
@example([Pass(3), Happens("delete"), Pass(0.5), Happens("delete"), Pass(20)], True)
@example([Pass(3), Happens("stop", 0), Pass(5)], True)
@settings(max_examples=examples(15))
async def test_never_two_and_in_the_end_one(steps: list[Pass | Happens], has_past: bool) -> None:
    """Whatever happens in whatever order: no two fences hold, no write is late, one leads."""
    weather = Weather(has_past=has_past)
    try:
        await weather.take(steps)
        await weather.clear_up()
        leaders = weather.holders
        await weather.pass_time(TIMING.lease_s)
    finally:
        await weather.end()

    assert len(leaders) == 1
    assert weather.leaders == leaders
    weather.check_acts()
