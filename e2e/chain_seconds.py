"""How long the tests of each chain take, so that the longest chains begin first.

`make durations` writes the table from the report that the last `make e2e` left in `.reports`. A
chain without a row begins last.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

_TABLE: Final = Path(__file__).with_suffix(".csv")
_REPORT: Final = Path(__file__).parents[1] / ".reports" / "e2e.xml"
_HEADING: Final = ("chain", "seconds")


def read_chain_seconds() -> Mapping[str, float]:
    """Return the seconds of each chain, by the name that `conftest.py` gives it."""
    with _TABLE.open(newline="") as file:
        return {row["chain"]: float(row["seconds"]) for row in csv.DictReader(file, strict=True)}


def _measured() -> Mapping[str, float]:
    """Add up what the report says of each chain, set-up and tear-down included."""
    found: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(_REPORT).iter("testcase"):  # noqa: S314 - pytest wrote it
        _, _, chain = case.get("name", "").rpartition("@")  # as conftest.py names it
        found[chain.removesuffix("]")] += float(case.get("time", "0"))
    return found


def main() -> int:
    """Write the table anew; 1 where there is no report."""
    if not _REPORT.exists():
        print(f"{_REPORT} not found: run `make e2e` first", file=sys.stderr)
        return 1
    with _TABLE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_HEADING)
        rows.writerows((chain, round(seconds)) for chain, seconds in sorted(_measured().items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
