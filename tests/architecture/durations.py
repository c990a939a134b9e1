"""How long each test file takes, as a committed table, and what a whole run takes by it.

`make durations` writes the table from the reports that the last `make test` left in `.reports`.
"""

import csv
import heapq
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from tests.support.repository import ROOT, project_files

__all__ = [
    "BUDGET_S",
    "TABLE",
    "WORKERS",
    "DurationRow",
    "all_test_files",
    "by_chain",
    "makespan",
    "read",
]

TABLE: Final = ROOT / "tests" / "durations.csv"
REPORTS: Final = ROOT / ".reports"
BUDGET_S: Final = 900.0  # `make test` on two cores, once its programs are built
WORKERS: Final = {"unit": 2, "e2e": 3, "serial": 1}  # as in the Makefile
_HEADING: Final = ("stage", "chain", "file", "seconds")


class DurationRow(NamedTuple):
    """What the tests of one file take that run on one chain; on none the chain is the file."""

    stage: str
    chain: str
    file: str
    seconds: float


def read(table: Path = TABLE) -> tuple[DurationRow, ...]:
    """Return all rows."""
    with table.open(newline="") as rows:
        found = csv.reader(rows, strict=True)
        next(found)
        return tuple(DurationRow(stage, chain, file, float(s)) for stage, chain, file, s in found)


def by_chain(rows: Iterable[DurationRow]) -> Mapping[str, Mapping[str, float]]:
    """Add up the seconds of each chain in each stage: its tests run one after the other."""
    found: dict[str, defaultdict[str, float]] = {it: defaultdict(float) for it in WORKERS}
    for row in rows:
        found[row.stage][row.chain] += row.seconds
    return found


def all_test_files() -> frozenset[str]:
    """Return every test file of the repository."""
    names = (path.relative_to(ROOT) for path in project_files())
    return frozenset(
        str(name) for name in names if name.parts[0] in ("tests", "e2e") and name.match("test_*.py")
    )


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Return when the last worker is done if each takes the longest that is left."""
    busy_until = [0.0] * workers
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + one)
    return max(busy_until)


def _measured(stage: str, report: Path) -> Iterator[DurationRow]:
    """Add up what a report says of each file and chain, set-up and tear-down included."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        while parts and not (file := Path(*parts).with_suffix(".py")).is_file():
            parts.pop()  # a class in a file
        _, is_named, chain = case.get("name", "").rpartition("@")  # as e2e/conftest.py names it
        key = chain.removesuffix("]") if is_named and stage == "e2e" else str(file)
        found[key, str(file)] += float(case.get("time", "0"))
    return (DurationRow(stage, *key, round(seconds, 1)) for key, seconds in sorted(found.items()))


def main() -> int:
    """Write the table anew; 1 where a stage has left no report."""
    reports = {stage: REPORTS / f"{stage}.xml" for stage in WORKERS}
    missing = [str(path.relative_to(ROOT)) for path in reports.values() if not path.exists()]
    if missing:
        print(f"{', '.join(missing)} not found: run `make test` first", file=sys.stderr)
        return 1
    with TABLE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_HEADING)
        measured = [row for stage, report in reports.items() for row in _measured(stage, report)]
        rows.writerows(measured)
        for name in sorted(all_test_files() - {row.file for row in measured}):  # only in a soak
            rows.writerow(
                DurationRow("e2e" if name.startswith("e2e/") else "unit", name, name, 0.0)
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
