"""What commands say before they ask any cluster, and when none can be asked."""

from pathlib import Path

import pytest

from tests.support.case import Case, ids
from trainer_kai.cli.main import main

# what is asked -> how the one line begins that says why not
REFUSED: list[Case[list[str], str]] = [
    Case("no kind", ["why", "node/x"], "trainer-kai: NAME: 'node/x' must be the name of a Train"),
    Case("no name", ["why", "pod/"], "trainer-kai: NAME: 'pod/' must be the name of a TrainJob"),
    Case("why without a cluster", ["why", "job"], "trainer-kai: kubeconfig: no such file: "),
    Case("a doctor without a cluster", ["doctor"], "trainer-kai: kubeconfig: no such file: "),
    Case("queues without a cluster", ["queue", "list"], "trainer-kai: kubeconfig: no such file: "),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_what_cannot_be_asked_is_told_in_one_line(
    case: Case[list[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With exit code 2, and no traceback."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    assert main(case.given) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(case.want)


@pytest.mark.parametrize("process", ["webhook", "podgrouper", "scheduler", "all"])
def test_a_process_takes_its_settings_as_flags(
    process: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that follows its name is for it, `--help` too."""
    with pytest.raises(SystemExit) as asked:
        main(["run", process, "--mode", "external", "--print-config"])
    assert (asked.value.code, "mode: external  # flag --mode" in capsys.readouterr().out) == (
        0,
        True,
    )
    with pytest.raises(SystemExit) as helped:
        main(["run", process, "--help"])
    assert (helped.value.code, "--health-port" in capsys.readouterr().out) == (0, True)
    with pytest.raises(SystemExit) as wrong:
        main(["run", process, "--mode=x"])
    assert (wrong.value.code, "flag --mode: 'x'" in capsys.readouterr().err) == (2, True)
