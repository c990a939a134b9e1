"""The pages of docs: complete, their links lead somewhere, and their commands are run."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT
from trainer_kai.api import names
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.service.config import settings_of
from trainer_kai.service.metrics import all_metrics
from trainer_kai.service.settings import PROCESSES

_DOCS: Final = sorted((ROOT / "docs").rglob("*.md"))
_LINKED: Final = [
    *_DOCS,
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(
        it
        for top in ("trainer_kai", "webhook", "scheduler", "manifests")
        for it in (ROOT / top).rglob("README.md")
    ),
]
_TEXT: Final = "\n".join(page.read_text() for page in _DOCS)
_LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A command of a block that is neither `bash`, which e2e/scheduling/test_docs.py runs, nor compared.
_COMMAND: Final = re.compile(
    r"^(\$ )?(trainer-kai|kubectl|python3?|make|curl|pip|docker|helm) ", re.MULTILINE
)

_README: Final = (ROOT / "README.md").read_text()
_VICTIMS_FIGURES: Final = r"(\d+): \(([\d.]+), ([\d.]+)\)"
_PLANNING_FIGURES: Final = r"nodes=(\d+),\s+most_s=([\d.]+),\s+kai_s=([\d.]+)"
_SHOWN_FIGURES: Final = r"^\| .* \| (\d+) \| ([\d.]+) s \| ([\d.]+) s \|$"

DOCUMENTED: Final = {
    "annotations": [
        name
        for name in vars(names).values()
        if isinstance(name, str)
        and name.startswith((names.TRAINER_KAI_PREFIX, names.KAI_PREFIX))
        and not name.endswith("/")
    ],
    "settings": sorted({name for model in PROCESSES.values() for name in settings_of(model)}),
    "metrics": [metric.name for metric in all_metrics().values()],
    "reasons": [*UnschedulableReason],
    "commands": [
        f"trainer-kai {it}"
        for it in ("plan", "simulate", "list", "why", "queue", "top", "doctor", "migrate", "run")
    ],
}


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_everything_a_user_meets_is_documented(kind: str) -> None:
    """Each name stands on some page, as code."""
    assert DOCUMENTED[kind]
    assert [it for it in DOCUMENTED[kind] if not re.search(rf"{re.escape(it)}\b", _TEXT)] == []


@pytest.mark.parametrize("page", _LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file that exists, and to a heading in it."""
    assert list(_broken_links(page)) == []


@pytest.mark.parametrize("page", _DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_run(page: Path) -> None:
    """A block is no command, is run on a cluster, or is compared with what its command prints."""
    unknown = [
        text.splitlines()[0]
        for language, text in _BLOCK.findall(page.read_text())
        if language != "bash" and _COMMAND.search(text) and not text.startswith("$ trainer-kai ")
    ]
    assert unknown == []


def test_the_readme_installs_as_the_page_about_it_says() -> None:
    """The command line of the README is that of docs/install.md, which a test runs."""
    found = re.search(r"^helm install (?:.*\\\n)*.*\n", _README, re.MULTILINE)
    assert found
    assert found[0] in (ROOT / "docs" / "install.md").read_text()
    assert len(_README.splitlines()) <= 120


def test_the_readme_has_the_versions_that_were_run() -> None:
    """Its rows are those of docs/versions.md, which `make versions` writes."""
    page = (ROOT / "docs" / "versions.md").read_text()
    runs = re.findall(r"^\| `\S+` \|((?: [^|]+ \|){5})", page, re.MULTILINE)
    section = _README.partition("\n## Supported versions\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\|((?: [^|]+ \|){5})$", section, re.MULTILINE)

    assert runs
    assert shown[1:] == [run for run in runs if run.split(" | ")[0].strip()[0].isdigit()]


def test_the_figures_of_the_comparison_are_those_of_the_benchmarks() -> None:
    """Nodes, the bound of ours that a benchmark asserts, and KAI's figure beside it."""
    victims, planning = (
        (ROOT / "benchmarks" / name).read_text() for name in ("victims.py", "planning.py")
    )
    measured = {
        *((nodes, ours, kai) for nodes, kai, ours in re.findall(_VICTIMS_FIGURES, victims)),
        *re.findall(_PLANNING_FIGURES, planning),
    }
    rows = re.findall(_SHOWN_FIGURES, (ROOT / "docs" / "comparison.md").read_text(), re.MULTILINE)
    shown = [(nodes, ours, f"{float(kai)}") for nodes, ours, kai in rows]

    assert len(shown) >= 5
    assert [row for row in shown if row not in measured] == []


def _broken_links(page: Path) -> list[str]:
    broken = []
    for target, anchor in _LINK.findall(_BLOCK.sub("", page.read_text())):
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and path.is_file() and anchor not in _anchors(path)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


def _anchors(path: Path) -> set[str]:
    """Return the anchors of headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
