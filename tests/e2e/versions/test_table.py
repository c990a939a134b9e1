"""The page of supported versions: what it is made of, and that it is of this checkout."""

import re
from collections.abc import Iterator

from e2e.cluster.catalog import COMPONENTS
from e2e.cluster.chains import all_chains, chain_modules
from e2e.versions.table import ChainRun, page
from tests.support.repository import ROOT

VERSIONS = {"Kubernetes": "v1.30.0", "etcd": "v3.5.10", "JobSet": "v0.8.2", "Trainer": "v2.0.0"}
OLD = ChainRun("old", VERSIONS, frozenset({"a", "b"}), "", 31.4, "2026-01-02")
NEW = ChainRun("new", VERSIONS, frozenset({"b", "c"}), "no | TrainJob", 9.0, "2026-01-02")


def test_a_chain_that_does_not_start_has_question_marks() -> None:
    """What it has is unknown, and changes no other column."""
    broken = ChainRun("broken", {}, None, "cannot be built", 0.0, "2026-01-02")
    lines = page([broken, OLD, NEW]).splitlines()

    assert "| `broken` | ? | ? | ? | ? | fails: cannot be built | 0 | 2026-01-02 |" in lines
    assert lines[-2:] == ["| a | ? | yes | no |", "| c | ? | no | yes |"]


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
