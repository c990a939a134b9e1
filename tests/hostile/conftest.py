"""Every simulation here has a bound on time and memory; the run prints the largest figures."""

import pickle
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest

from tests.support.repository import ROOT

MAX_PLAIN_PLANS: Final = 200  # so much CPU time as these, from a cluster to its plan
MAX_MIB: Final = 512
_TIMEOUT_S: Final = 240.0  # an answer ends the wait
_TRIES: Final = 3  # what else the machine does makes a plan longer, and none shorter


class Measured(NamedTuple):
    """What came of a simulation, and what it took."""

    document: Mapping[str, Any]
    warnings: tuple[str, ...]
    plain_plans: float  # of the same CPU time, per cycle
    peak_mib: int

    @property
    def binds(self) -> dict[str, str]:
        """Return the node of each pod that the first cycle binds, by namespace/name."""
        return {f"{it['namespace']}/{it['pod']}": it["node"] for it in self._first["binds"]}

    @property
    def evictions(self) -> dict[str, str]:
        """Return the action by which the first cycle evicts each pod, by namespace/name."""
        return {f"{it['namespace']}/{it['pod']}": it["action"] for it in self._first["evictions"]}

    @property
    def waiting(self) -> dict[str, Mapping[str, str]]:
        """Return reason and message of each PodGroup that waits, by namespace/name."""
        rows = self._first["unschedulable"]
        return {f"{it['namespace']}/{it['podGroup']}": it for it in rows}

    @property
    def _first(self) -> Mapping[str, Any]:
        first: Mapping[str, Any] = self.document["cycles"][0]
        return first


SimulateFixture = Callable[..., Measured]


class _Simulator:
    """The program that forks for each simulation; one for all tests of a worker."""

    def __init__(self) -> None:
        argv = [sys.executable, "-m", "tests.hostile.simulation_process"]
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(argv, stdin=pipe, stdout=pipe, cwd=ROOT)

    def ask(self, question: bytes) -> bytes:
        """Return the answer; end the program if there is none in time."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(len(question).to_bytes(8, "big") + question)
        self._program.stdin.flush()
        if not select.select([self._program.stdout], [], [], _TIMEOUT_S)[0]:
            self.stop()
            pytest.fail(f"a simulation took more than {_TIMEOUT_S:g} s")
        length = int.from_bytes(self._program.stdout.read(8), "big")
        assert length, "a simulation failed: its error is on standard error"
        return self._program.stdout.read(length)

    def stop(self) -> None:
        """End it, and what it simulates."""
        self._program.kill()
        self._program.communicate()


@pytest.fixture(scope="session")
def simulator() -> Iterator[_Simulator]:
    """Return the program, started."""
    simulator = _Simulator()
    yield simulator
    simulator.stop()


@pytest.fixture
def simulate(request: pytest.FixtureRequest, simulator: _Simulator) -> SimulateFixture:
    """Return what simulates objects, with a bound on CPU time and memory."""

    def simulated(objects: Sequence[Mapping[str, Any]], **options: object) -> Measured:
        question = pickle.dumps((list(objects), options))
        measured = Measured(**pickle.loads(simulator.ask(question)))
        for _ in range(_TRIES - 1):
            if measured.plain_plans >= MAX_PLAIN_PLANS:
                measured = Measured(**pickle.loads(simulator.ask(question)))
        request.node.user_properties.append(("hostile", measured[2:]))
        assert measured.plain_plans < MAX_PLAIN_PLANS, (
            f"a plan took the CPU time of {measured.plain_plans:.0f} plain plans"
        )
        assert measured.peak_mib < MAX_MIB, f"the process took {measured.peak_mib} MiB"
        return measured

    return simulated


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the longest plan and the largest process of the suite."""
    rows = list(_rows(terminalreporter))
    if rows:
        plain_plans, peak_mib = (max(row[at] for row in rows) for at in (0, 1))
        terminalreporter.section("hostile tenants")
        terminalreporter.write_line(
            f"{len(rows)} simulations: longest plan {plain_plans:.0f} plain plans "
            f"(< {MAX_PLAIN_PLANS}), "
            f"largest process {peak_mib:g} MiB (< {MAX_MIB} MiB)"
        )


def _rows(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[float, ...]]:
    for report in terminalreporter.getreports(""):
        if report.when == "teardown":  # those that passed stand under another heading
            yield from (row for name, row in report.user_properties if name == "hostile")
