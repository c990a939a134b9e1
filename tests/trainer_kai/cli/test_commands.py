"""What commands say before they ask any cluster, and when none can be asked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from trainer_kai.cli.main import build_parser, main
from trainer_kai.version import __version__

BORROWED = ROOT / "tests/fixtures/clusters/over-borrowed.yaml"

# what is asked -> how the one line begins that says why not
REFUSED: list[Case[list[str], str]] = [
    Case(
        "a node has no why",
        ["why", "node/x"],
        "trainer-kai: NAME: 'node/x' must be the name of a workload or pod",
    ),
    Case(
        "an empty name is refused",
        ["why", "pod/"],
        "trainer-kai: NAME: 'pod/' must be the name of a workload or pod, or trainjob/NAME",
    ),
    Case("a list without a cluster", ["list", "-A"], "trainer-kai: kubeconfig: no such file: "),
    Case("all that waits, without a cluster", ["why"], "trainer-kai: kubeconfig: no such file: "),
    Case("why without a cluster", ["why", "job"], "trainer-kai: kubeconfig: no such file: "),
    Case("a doctor without a cluster", ["doctor"], "trainer-kai: kubeconfig: no such file: "),
    Case("queues without a cluster", ["queue", "list"], "trainer-kai: kubeconfig: no such file: "),
    Case("no cluster to write to", ["queue", "create", "q"], "trainer-kai: kubeconfig: no such "),
    Case("nor to grant in", ["queue", "allow", "q", "-n", "x"], "trainer-kai: kubeconfig: no such"),
    Case("nor to close", ["queue", "close", "q", "--from-usage"], "trainer-kai: kubeconfig: no su"),
    Case("nor to open", ["queue", "open", "q"], "trainer-kai: kubeconfig: no such file: "),
]


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("--gpu-quota", "-2", "'-2' must be a number of 0 or more, or -1 (unlimited)"),
        ("--gpu-limit", "many", "'many' must be a number of 0 or more, or -1 (unlimited)"),
        ("--weight", "-1", "'-1' must be a number of 0 or more"),
    ],
)
def test_a_share_that_is_none_is_refused(
    flag: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any cluster is asked, by the flag and with what would be right."""
    with pytest.raises(SystemExit) as ended:
        main(["queue", "create", "q", flag, text])

    assert ended.value.code == 2
    assert f"argument {flag}: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_what_cannot_be_asked_is_reported_in_one_line(
    case: Case[list[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With exit code 2, and no traceback."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    assert main(case.given) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith(case.want)


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_completes_commands_and_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all commands, without a question to any process."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert {"simulate", "queue", "release"} <= set(re.findall(r"[a-z]+", script))
    assert "waiting" in script


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Of trainer-kai and of Python, on one line."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    python = ".".join(map(str, sys.version_info[:3]))
    want = f"trainer-kai {__version__} (Python {python})\n"
    assert (ended.value.code, capsys.readouterr().out) == (0, want)


# the program that is run -> how it calls itself
PROGRAMS: list[Case[str, str]] = [
    Case("a program is called by its name", "/usr/bin/trainer-kai", "trainer-kai"),
    Case("a plugin of kubectl", "/usr/bin/kubectl-trainer_kai", "kubectl trainer-kai"),
    Case("a plugin on Windows", "kubectl-trainer_kai.exe", "kubectl trainer-kai"),
    Case("a module is called as the program", "/src/trainer_kai/cli/__main__.py", "trainer-kai"),
]


@pytest.mark.parametrize("case", PROGRAMS, ids=ids)
def test_the_usage_names_the_program(case: Case[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the user started it."""
    monkeypatch.setattr(sys, "argv", [case.given])

    assert build_parser().prog == case.want


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


def test_an_answer_that_finds_no_room_is_reported_in_one_line() -> None:
    """A full disk is no mistake of ours: exit 2, and no traceback, also not at the end."""
    program = "import sys; from trainer_kai.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "simulate", "-f", str(BORROWED)]
    with Path("/dev/full").open("w") as full:
        completed = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    message = "trainer-kai: cannot write the output: No space left on device\n"
    assert (completed.returncode, completed.stderr) == (2, message)


def test_no_command_waits_for_the_libraries_of_others() -> None:
    """The parser has the arguments of all; what a command needs is imported when it runs."""
    program = "import sys, trainer_kai.cli.main as m; m.build_parser(); print(*sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    slow = {"aiohttp", "asyncio", "jsonpatch", "msgspec", "numpy", "pydantic", "yaml"}
    assert slow.isdisjoint(completed.stdout.split())
