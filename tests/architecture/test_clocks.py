"""No test fails because a machine is slow: clocks are not compared with constants."""

import pytest

from tests.architecture.clocks import MIN_WAIT_S, clock_faults
from tests.support.case import Case, ids
from tests.support.repository import ROOT, project_files

MODULES = {
    name: path
    for path in project_files()
    if (name := path.relative_to(ROOT).as_posix()).endswith(".py")
    and name.split("/")[0] in ("tests", "e2e")
}
# What the library of the chain does by the clock, which no test compares.
EXEMPT = {
    "tests/support/time_budget.py": "takes a sample from time to time",
    "e2e/cluster/cluster.py": "polls until it was interrupted",
    "e2e/cluster/progress.py": "prints a line from time to time",
    "e2e/cluster/registry.py": "removes folders that are old",
}

BEGIN = "import time\nbegan = time.monotonic()\nwork()\n"
COUNT = "from tests.support.cpu_time import cpu_s\n"

# a module → the lines that compare a time with a constant
COMPARED: list[Case[str, list[int]]] = [
    Case("a difference of readings", f"{BEGIN}assert time.monotonic() - began < 2", [4]),
    Case("the constant first", f"{BEGIN}assert 2 > time.monotonic() - began", [4]),
    Case("from both sides", f"{BEGIN}assert 0.5 <= time.monotonic() - began < 2", [4]),
    Case("CPU time", "import time\nassert time.process_time() < 2", [2]),
    Case("another name", "from time import process_time as cpu\nassert cpu() - began < 2", [2]),
    Case("by a name", f"{BEGIN}took = time.monotonic() - began\nassert took < 2", [5]),
    Case("by a constant's name", f"MOST = 0.5\n{BEGIN}assert time.monotonic() - began < MOST", [5]),
    Case("arithmetic of constants", f"A = 3\n{BEGIN}assert time.monotonic() - began <= A * 2", [5]),
    Case("by the loop", "loop = running()\na = loop.time()\nassert loop.time() - a < 2", [3]),
    Case("nanoseconds", "import time\na = time.time_ns()\nassert time.time_ns() - a < 1e9", [3]),
    Case("not asserted", f"{BEGIN}if time.monotonic() - began > 2:\n    fail()", [4]),
    Case("the best of several", f"{COUNT}assert min(cpu_s(work) for _ in range(3)) < 1", [2]),
    Case(
        "what a function returns",
        "import time\ndef took(): return time.monotonic() - began\nassert took() < 2",
        [3],
    ),
    Case(
        "what a function is given",
        f"{COUNT}def within(measure, most):\n"
        "    return any(measure() < most for _ in range(3))\n"
        "assert within(lambda: cpu_s(work), 0.1)",
        [3],
    ),
    Case(
        "the longest in a loop",
        "import time\nlongest = 0.0\nfor it in all:\n    began = time.thread_time()\n"
        "    longest = max(longest, time.thread_time() - began)\nassert longest < 0.1",
        [6],
    ),
    Case("a deadline for work", f"{BEGIN}end = began + 2\nassert time.monotonic() < end", [5]),
    Case("named like a time", "assert measured.plan_s < 1", [1]),
    Case("a ratio", f"{COUNT}assert cpu_s(work) < 5 * cpu_s(plain)", []),
    Case("a quotient", f"{COUNT}assert cpu_s(work) / cpu_s(plain) < 5", []),
    Case(
        "a bound times the probe",
        "from tests.support.machine_speed import slowdown_now\n"
        f"{BEGIN}slow = slowdown_now()\nassert time.monotonic() - began < 2 * slow",
        [],
    ),
    Case("at least so long", f"{BEGIN}assert time.monotonic() - began >= 0.5", []),
    Case("a loop for a while", f"{BEGIN}while time.monotonic() - began < 2.5:\n    work()", []),
    Case(
        "a generous end",
        "import time\nend = time.monotonic() + 60\nwhile not done():\n"
        "    assert time.monotonic() < end",
        [],
    ),
    Case(
        "a virtual clock",
        "clock = VirtualClock()\ntook_s = await until_held(clock)\nassert took_s < 17",
        [],
    ),
    Case("a length that was chosen", "assert backoff_wait_s < 30", []),
]

# a module → the lines of waits that end too early
IMPATIENT: list[Case[str, list[int]]] = [
    Case("a block", "async with asyncio.timeout(5):\n    await done()", [1]),
    Case("a call", "await asyncio.wait_for(done(), 1)", [1]),
    Case("by a keyword", "MOST = 10\nsubprocess.run(command, timeout=MOST)", [2]),
    Case("a pipe", "select.select([pipe], [], [], 5.0)", [1]),
    Case("a mark", "@pytest.mark.timeout(10)\ndef test(): ...", [1]),
    Case("a generous end", f"async with asyncio.timeout({MIN_WAIT_S}):\n    await done()", []),
    Case("no constant", "async with asyncio.timeout(5 * slowdown):\n    await done()", []),
    Case(
        "nothing comes",
        "with pytest.raises(TimeoutError):\n    await asyncio.wait_for(done(), 0.1)",
        [],
    ),
]


def lines(text: str) -> list[int]:
    """Return the lines of the faults of a module."""
    return [int(it.split(":")[1]) for it in clock_faults({"tests/new.py": text})]


@pytest.mark.parametrize("case", COMPARED, ids=ids)
def test_comparisons(case: Case[str, list[int]]) -> None:
    """Of a measured time with a constant, however it is reached."""
    assert lines(case.given) == case.want


@pytest.mark.parametrize("case", IMPATIENT, ids=ids)
def test_waits(case: Case[str, list[int]]) -> None:
    """A wait that ends at a condition costs nothing, so its end is generous."""
    assert lines(case.given) == case.want


def test_names_of_other_modules_are_followed() -> None:
    """A constant and a function that measures are what they are where they are made."""
    measure = "import time\nMOST = 2\ndef took(began): return time.monotonic() - began"
    use = "from tests.measure import MOST, took\nassert took(0) < MOST"
    [fault] = clock_faults({"tests/measure.py": measure, "tests/new.py": use})

    assert fault.startswith("tests/new.py:2: `took(0) < MOST` compares a time with a constant")
    assert "tests.support.cpu_time" in fault


def test_no_test_compares_a_clock_with_a_constant() -> None:
    """In tests and on the chain; what a slow machine fails says nothing about the product."""
    faults = clock_faults({name: path.read_text() for name, path in MODULES.items()})

    assert [it for it in faults if it.split(":")[0] not in EXEMPT] == []
