"""Which programs are built, and what a build that fails leaves behind. Go is a script here."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from e2e.cluster import catalog
from e2e.cluster.binaries import ensure_built
from e2e.cluster.build_folder import LOCK, build_lock
from e2e.cluster.catalog import Catalog
from e2e.cluster.paths import programs_root
from e2e.cluster.recipe import all_recipes
from e2e.cluster.toolchain import BuildError

GO = """\
#!/bin/sh
case "$1 $2" in
"env GOVERSION") echo go1.99.0;;
"env "*) echo /go;;
"version -m")
  shift 2
  for it; do printf '%s: go1.99\\n\\tdep\\tx.io/x\\tv1\\n\\t=>\\tx.io/y\\tv1\\n\\t\\n' "$it"; done;;
"build "*)
  while [ "$1" != -o ]; do shift; done
  out=$2; shift 2
  for package; do : >"$out${package##*/}"; done
  [ -z "$BROKEN" ] || { echo "no space left" >&2; exit 3; };;
esac
"""


@pytest.fixture(autouse=True)
def _go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a Go that builds empty programs on PATH, and no other program."""
    (cache / "go").write_text(GO)
    (cache / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.setattr(Catalog, "collect", lambda *_: Catalog([], [], [], [], {}, {}))


def test_a_cluster_needs_neither_helm_nor_kube_scheduler() -> None:
    """They are built for what asks for them."""
    cluster = set(ensure_built().programs)

    operators = {"ray-operator", "training-operator", "karpenter"}  # for a soak
    assert all_recipes().keys() - cluster - operators == {"kube-scheduler", "helm"}
    assert ensure_built("helm").programs.keys() - cluster == {"helm"}


def test_only_what_is_missing_is_built(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before what is built and what that takes; nothing is built twice."""
    built = ensure_built()
    shutil.rmtree(built.program("kwok").parent)
    capsys.readouterr()

    assert ensure_built() == built

    said = capsys.readouterr().out
    assert said.startswith("building from source what is not in the cache: kwok\n  The first time")
    monkeypatch.setenv("PATH", str(cache / "empty"))
    assert ensure_built() == built


def test_another_reader_of_manifests_builds_no_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The catalogue alone is made again."""
    before = ensure_built()
    capsys.readouterr()
    monkeypatch.setattr(catalog, "__file__", __file__)  # other code

    after = ensure_built()

    assert (after.programs, after.catalog()) == (before.programs, before.catalog())
    assert after.catalog_file != before.catalog_file
    assert "building" not in capsys.readouterr().out


def test_a_build_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a build is never found by the next run, and what an earlier one left is swept away."""
    (programs_root() / ".building-cut-off").mkdir(parents=True)
    monkeypatch.setenv("BROKEN", "yes")

    with pytest.raises(BuildError, match="go build failed with exit status 3"):
        ensure_built()

    assert [file.name for file in programs_root().iterdir()] == [LOCK]
    assert "no space left" in capsys.readouterr().err


def test_one_builds_and_the_others_say_that_they_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """Two builds at once would take twice as long."""
    second = threading.Thread(target=ensure_built)
    with build_lock():
        second.start()
        said = ""
        while not said.endswith("\n"):
            time.sleep(0.01)
            said += capsys.readouterr().out
        assert said == "another process is building programs: waiting for it\n"
        assert [file.name for file in programs_root().iterdir()] == [LOCK]
    second.join()
