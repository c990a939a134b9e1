"""What these tests share: a cache folder of their own, and a process that only runs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that takes the place of the cache of this machine."""
    monkeypatch.setenv("TRAINER_KAI_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """Return a process that does nothing for long enough."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()
