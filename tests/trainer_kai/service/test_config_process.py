"""The settings of a whole process: what it prints, and how it ends when they cannot work."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT
from trainer_kai.service.config import load, read_or_exit, settings_of
from trainer_kai.service.settings import AllSettings, SchedulerSettings
from trainer_kai.version import __version__


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


# A whole process: reads its settings and says one of them.
PROGRAM = """
import os, sys
from trainer_kai.service.config import read_or_exit
from trainer_kai.service.settings import SchedulerSettings

print("level", read_or_exit(SchedulerSettings, sys.argv[1:], os.environ).log.level)
"""


def run(*argv: str, **environ: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *argv],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]} | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def ended(capsys: pytest.CaptureFixture[str], *argv: str, **environ: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as end:
        read_or_exit(SchedulerSettings, argv, environ)
    return end.value.code, *capsys.readouterr()


def test_a_process_starts_with_its_settings(file: Path) -> None:
    """From a file that a flag names, and from its environment, which outranks the file."""
    file.write_text("log: {level: debug}")

    assert run("--config", str(file)) == (0, "level debug\n", "")
    assert run("--config", str(file), TRAINER_KAI_LOG_LEVEL="warning") == (0, "level warning\n", "")


def test_a_process_ends_with_2_and_all_faults_on_standard_error() -> None:
    """No traceback: it is the settings, not the program."""
    code, out, err = run("--mode=x", "--print-config", TRAINER_KAI_LOG_LEVEL="loud")

    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "The settings are invalid:",
        "environment TRAINER_KAI_LOG_LEVEL: 'loud' should be 'debug', 'info', 'warning' or 'error'",
        "flag --mode: 'x' should be 'bundled' or 'external'",
    ]


def test_a_process_prints_its_settings_with_their_sources(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed is a file that means the same."""
    file.write_text("default_queue: 'on'\nleader:\n  lease_s: 30\n")
    argv = ("--config", str(file), "--context=a: b # c")

    code, out, err = ended(capsys, *argv, "--print-config", TRAINER_KAI_LOG_LEVEL="debug")

    assert (code, err) == (0, "")
    printed = out.splitlines()
    assert "context: 'a: b # c'  # flag --context" in printed
    assert f"default_queue: 'on'  # {file}:1 default_queue" in printed
    assert "  level: debug  # environment TRAINER_KAI_LOG_LEVEL" in printed
    assert f"  lease_s: 30  # {file}:3 leader.lease_s" in printed
    assert "  retry_s: 2.0  # default" in printed
    file.write_text(out)
    again = load(SchedulerSettings, ["--config", str(file)], {})
    assert again == load(
        SchedulerSettings,
        ["--context=a: b # c", "--default-queue=on", "--leader-lease-s=30", "--log-level=debug"],
        {},
    )


def test_settings_of_several_programs_are_printed_as_a_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However deep they lie."""
    argv = ["--webhook-server-port=1", "--scheduler-leader-lease-s=30", "--mode=external"]
    with pytest.raises(SystemExit):
        read_or_exit(AllSettings, [*argv, "--print-config"], {})
    file.write_text(capsys.readouterr().out)

    assert load(AllSettings, ["--config", str(file)], {}) == load(AllSettings, argv, {})


def test_a_process_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Also if a setting has a fault."""
    code, out, err = ended(capsys, "--version", "--no-such-flag")

    assert (code, err) == (0, "")
    assert out.startswith(f"trainer-kai {__version__} (Python 3.")


def test_a_process_explains_its_settings_whatever_else_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Help is printed although the settings have faults."""
    code, out, err = ended(capsys, "--help", "--no-such-flag")

    assert (code, err) == (0, "")
    for setting in settings_of(SchedulerSettings).values():
        assert f"{setting.flag}\n    {setting.doc} Default: {setting.default!r}." in out
