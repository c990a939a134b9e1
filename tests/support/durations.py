"""How long each test file takes, as a committed table, and what a whole run takes by it.

`make durations` writes the table from the reports that the last `make test` left in `.reports`.
"""

import csv
import heapq
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.support.tree import ROOT, project_files

__all__ = ["BUDGET_S", "TABLE", "WORKERS", "all_test_files", "makespan", "read"]

TABLE: Final = ROOT / "tests" / "durations.csv"
REPORTS: Final = ROOT / ".reports"
BUDGET_S: Final = 900.0  # `make test` on two cores, once its programs are built
WORKERS: Final = {"unit": 2, "e2e": 3, "serial": 1}  # as in the Makefile
_HEADING: Final = ("stage", "file", "seconds")


def read(table: Path = TABLE) -> Mapping[tuple[str, str], float]:
    """Return the seconds of each file in each stage in which it has tests."""
    with table.open(newline="") as rows:
        return {
            (row["stage"], row["file"]): float(row["seconds"])
            for row in csv.DictReader(rows, strict=True)
        }


def all_test_files() -> frozenset[str]:
    """Return every test file of the repository."""
    names = (path.relative_to(ROOT) for path in project_files())
    return frozenset(
        str(name) for name in names if name.parts[0] in ("tests", "e2e") and name.match("test_*.py")
    )


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Return when the last worker is done if each takes the longest file that is left."""
    busy_until = [0.0] * workers
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + one)
    return max(busy_until)


def _measured(report: Path) -> Mapping[str, float]:
    """Add up what a report says of each file, set-up and tear-down included."""
    found: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        while parts and not (file := Path(*parts).with_suffix(".py")).is_file():
            parts.pop()  # a class in a file
        found[str(file)] += float(case.get("time", "0"))
    return found


def main() -> int:
    """Write the table anew; 1 where a stage has left no report."""
    reports = {stage: REPORTS / f"{stage}.xml" for stage in WORKERS}
    missing = [str(path.relative_to(ROOT)) for path in reports.values() if not path.exists()]
    if missing:
        print(f"{', '.join(missing)} is missing: run `make test` first", file=sys.stderr)
        return 1
    with TABLE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_HEADING)
        for stage, report in reports.items():
            measured = sorted(_measured(report).items())
            rows.writerows((stage, name, f"{seconds:.1f}") for name, seconds in measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
