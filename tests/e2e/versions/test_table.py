"""The page of supported versions: what it is made of, and that it is of this checkout."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.catalog import COMPONENTS
from e2e.cluster.chains import all_chains, chain_modules
from e2e.versions.table import ChainRun, failure_of, kubernetes_version, page
from tests.support.case import Case, ids
from tests.support.repository import ROOT

VERSIONS = {"Kubernetes": "v1.30.0", "etcd": "v3.5.10", "JobSet": "v0.8.2", "Trainer": "v2.0.0"}
OLD = ChainRun("old", VERSIONS, frozenset({"a", "b"}), "", 31.4, "2026-01-02")
NEW = ChainRun("new", VERSIONS, frozenset({"b", "c"}), "no | TrainJob", 9.0, "2026-01-02")

FAILURES = [
    Case("all is Complete", (0, "a warning\n"), ""),
    Case("the demo says why", (1, "demo: 422 Invalid: a rule\n | more\n"), "422 Invalid: a rule"),
    Case("the demo says nothing", (3, "Traceback\n"), "exit status 3"),
    Case("a path", (1, f"demo: see {Path.home()}/logs"), "see ~/logs"),
    Case("a long reason", (1, "demo: " + "word " * 99), "word " * 46 + "word …"),
]


@pytest.mark.parametrize("case", FAILURES, ids=ids)
def test_failure(case: Case[tuple[int, str], str]) -> None:
    """One line of bounded length, which holds on any machine."""
    assert failure_of(*case.given) == case.want


def test_each_chain_is_a_row() -> None:
    """A failure stays in the table, with its reason, which cannot break the row."""
    rows = [line for line in page([OLD, NEW]).splitlines() if "2026" in line]

    assert rows == [
        "| `old` | 1.30.0 | 3.5.10 | 0.8.2 | 2.0.0 | works | 31 | 2026-01-02 |",
        "| `new` | 1.30.0 | 3.5.10 | 0.8.2 | 2.0.0 | fails: no   TrainJob | 9 | 2026-01-02 |",
    ]


def test_only_what_differs_is_listed() -> None:
    """What all chains have is no difference."""
    lines = page([OLD, NEW]).splitlines()

    assert lines[-4:] == [
        "| what | `old` | `new` |",
        "| --- | --- | --- |",
        "| a | yes | no |",
        "| c | no | yes |",
    ]


def test_a_chain_that_does_not_start_has_question_marks() -> None:
    """What it has is unknown, and changes no other column."""
    broken = ChainRun("broken", {}, None, "cannot be built", 0.0, "2026-01-02")
    lines = page([broken, OLD, NEW]).splitlines()

    assert "| `broken` | ? | ? | ? | ? | fails: cannot be built | 0 | 2026-01-02 |" in lines
    assert lines[-2:] == ["| a | ? | yes | no |", "| c | ? | no | yes |"]


def test_rows_are_sorted_by_numbers() -> None:
    """A version can be a candidate of a release, or unknown."""
    versions = ["v1.33.0-rc.1", "v1.9.2", ""]
    runs = [OLD._replace(versions={"Kubernetes": it} if it else {}) for it in versions]

    assert [*map(kubernetes_version, runs)] == [[1, 33, 0, 1], [1, 9, 2], []]


def test_the_page_is_of_the_modules_of_this_checkout() -> None:
    """A new version of a program needs another `make versions`."""
    text = (ROOT / "docs" / "versions.md").read_text()
    written = re.findall(
        r"^\| `([-\w]+)` \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|", text, re.MULTILINE
    )

    assert sorted(written) == sorted((name, *_required(name)) for name in all_chains())


def _required(chain: str) -> Iterator[str]:
    """Yield the versions that the go.mod files of a chain require, the last one counts."""
    texts = [(module / "go.mod").read_text() for module in chain_modules(chain)]
    for component, (_, path) in COMPONENTS.items():
        pattern = rf"^\s*(?:require )?{re.escape(path)} v(\S+)"
        found = [it for text in texts for it in re.findall(pattern, text, re.MULTILINE)]
        if component != "KWOK":
            yield found[-1]
