"""Every simulation here has a bound on time and memory; the run prints the largest figures."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest

from tests.support.repository import ROOT

__all__ = ["Measured", "SimulateFixture"]

MAX_CPU_S: Final = 1.0  # of CPU, from a cluster to its plan
MAX_MIB: Final = 512
_TIMEOUT_S: Final = 60.0


class Measured(NamedTuple):
    """What came of a simulation, and what it took."""

    document: Mapping[str, Any]
    warnings: tuple[str, ...]
    prepare_s: float
    plan_s: float
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


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> SimulateFixture:
    """Return what simulates objects: a plan takes < 1 s of CPU, and the process < 512 MiB."""

    def simulated(objects: Sequence[Mapping[str, Any]], **options: object) -> Measured:
        child = subprocess.run(
            [sys.executable, "-m", "tests.hostile.simulation_process"],
            input=pickle.dumps((list(objects), options)),
            stdout=subprocess.PIPE,
            cwd=ROOT,
            timeout=_TIMEOUT_S,
            check=True,
        )
        measured = Measured(**pickle.loads(child.stdout))
        request.node.user_properties.append(("hostile", measured[2:]))
        assert measured.plan_s < MAX_CPU_S, f"a plan took {measured.plan_s:.2f} s of CPU"
        assert measured.peak_mib < MAX_MIB, f"the process took {measured.peak_mib} MiB"
        return measured

    return simulated


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the longest plan and the largest process of the suite."""
    rows = list(_rows(terminalreporter))
    if rows:
        plan_s, peak_mib = (max(row[at] for row in rows) for at in (1, 2))
        terminalreporter.section("hostile tenants")
        terminalreporter.write_line(
            f"{len(rows)} simulations: longest plan {plan_s:.2f} s of CPU (< {MAX_CPU_S:g} s), "
            f"largest process {peak_mib:g} MiB (< {MAX_MIB} MiB)"
        )


def _rows(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[float, ...]]:
    for report in terminalreporter.getreports(""):
        if report.when == "teardown":  # those that passed stand under another heading
            yield from (row for name, row in report.user_properties if name == "hostile")
