"""What the README and the pages of docs show of a command is what it prints."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from trainer_kai.cli.main import main

SHOWN = re.compile(r"```\n\$ \S*trainer-kai (?P<arguments>.+)\n(?P<output>(?:.*\n)+?)```")


PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if SHOWN.search(page.read_text())
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_shown_is_what_is_printed(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shown command is run again, and prints the same."""
    monkeypatch.chdir(ROOT)

    for it in SHOWN.finditer(page.read_text()):
        main(shlex.split(it["arguments"]))
        assert capsys.readouterr().out.splitlines() == it["output"].splitlines()


def test_the_trainjob_with_claims_is_the_one_that_is_planned() -> None:
    """The page shows the file that its commands read."""
    page = (ROOT / "docs/claims.md").read_text()
    shown = page.split("```yaml\n")[1].split("```")[0]

    assert shown == (ROOT / "tests/fixtures/clusters/claims/train.yaml").read_text()
