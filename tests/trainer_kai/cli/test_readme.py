"""What the READMEs show of a command is what it prints."""

import re
import shlex

import pytest

from tests.support.repository import ROOT
from trainer_kai.cli.main import main

SHOWN = re.compile(r"```\n\$ \S*trainer-kai (?P<arguments>.+)\n(?P<output>(?:.*\n)+?)```")


@pytest.mark.parametrize("readme", ["README.md", "trainer_kai/cli/README.md"])
def test_what_is_shown_is_what_is_printed(
    readme: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shown command is run again, and prints the same."""
    monkeypatch.chdir(ROOT)
    shown = list(SHOWN.finditer((ROOT / readme).read_text()))

    assert shown
    for it in shown:
        main(shlex.split(it["arguments"]))
        assert capsys.readouterr().out.splitlines() == it["output"].splitlines()
