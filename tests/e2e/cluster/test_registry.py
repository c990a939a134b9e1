"""Which clusters there are, and which have gone without saying so."""

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from e2e.cluster import registry
from e2e.cluster.paths import kept_logs_root
from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.registry import Note, RunFolder
from tests.support.case import Case, ids

US = identify(os.getpid())
NOBODY = Identity(os.getpid(), born_ticks=1)  # our number, but somebody before us


@pytest.fixture(autouse=True)
def _own_cache(cache: Path) -> None:
    """Keep away from the clusters of this machine."""
    assert registry.clusters_root() == cache / "clusters"


def make_note(name: str, owner: Identity | None = US, **programs: Identity | None) -> Note:
    """Make a run folder with a note of who runs in it."""
    folder = registry.clusters_root() / name
    folder.mkdir(parents=True)
    note = Note.of_us(name, "https://127.0.0.1:1", by_hand=True)
    living = {program: who for program, who in programs.items() if who is not None}
    note = note._replace(owner=owner or NOBODY, programs=living)
    note.write()
    return note


def folders() -> list[str]:
    """Return the names of the run folders."""
    return sorted(folder.name for folder in registry.clusters_root().iterdir())


def test_names_are_numbered() -> None:
    """A name that is taken gets a number, and one that is free again is used again."""
    with RunFolder("chain") as one, RunFolder("chain") as two:
        with RunFolder("chain") as three:
            assert [one.name, two.name, three.name] == ["chain", "chain-2", "chain-3"]
            assert folders() == ["chain", "chain-2", "chain-3"]
        with RunFolder("chain") as again, RunFolder("other") as other:
            assert [again.name, other.name] == ["chain-3", "other"]

    assert folders() == []


# who holds the cluster, who runs in it -> whether its folder stays
SWEEPS = [
    Case("held and running", (US, US), ["one"]),
    Case("held, but a program died", (US, NOBODY), ["one"]),
    Case("held by nobody, but something runs yet", (NOBODY, US), ["one"]),
    Case("held by nobody, and nothing runs", (NOBODY, NOBODY), []),
]


@pytest.mark.parametrize("case", SWEEPS, ids=ids)
def test_sweep_removes_only_what_is_dead(
    case: Case[tuple[Identity, Identity], list[str]],
) -> None:
    """A folder goes when nobody holds the cluster and nothing of it runs."""
    owner, program = case.given
    make_note("one", owner, etcd=program)

    registry.sweep()

    assert folders() == case.want


def test_sweep_gives_a_new_cluster_time() -> None:
    """A folder without a note is one that is being made, until it has been that for too long."""
    for name in ("young", "old"):
        (registry.clusters_root() / name).mkdir(parents=True)
    long_ago = time.time() - 61
    os.utime(registry.clusters_root() / "old", (long_ago, long_ago))

    registry.sweep()

    assert folders() == ["young"]


def test_clusters_may_go_while_they_are_looked_at() -> None:
    """A cluster that ends between two looks at its folder is gone, and that is no error."""
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            make_note("brief")
            registry.remove(registry.clusters_root() / "brief")

    clusters = threading.Thread(target=come_and_go)
    clusters.start()
    try:
        for _ in range(1000):
            registry.sweep()
            registry.known()
    finally:
        over.set()
        clusters.join()


def run_until(ending: type[BaseException] | None, *, keep_logs: bool = False) -> list[str]:
    """Have a cluster say something and end; return what is kept of all that was ever said."""
    with contextlib.suppress(BaseException), RunFolder("run") as run:
        (run.path / "logs").mkdir()
        (run.path / "logs" / "etcd.log").write_text(str(ending))
        run.keep_logs = keep_logs
        if ending is not None:
            raise ending
    return [log.read_text() for log in sorted(kept_logs_root().glob("*/etcd.log"))]


# how a cluster ends, whether it was told to keep its logs -> whether they are kept
ENDINGS = [
    Case("well", (None, False), []),
    Case("well, but its test failed", (None, True), ["None"]),
    Case("by an error", (ValueError, False), ["<class 'ValueError'>"]),
    Case("by Ctrl-C", (KeyboardInterrupt, False), []),
    Case("because it was told to", (asyncio.CancelledError, False), []),
    Case("because nobody wants it any more", (GeneratorExit, False), []),
]


@pytest.mark.parametrize("case", ENDINGS, ids=ids)
def test_logs_of_failures_are_kept(
    case: Case[tuple[type[BaseException] | None, bool], list[str]],
) -> None:
    """The folder is gone whatever happened; its logs survive a failure and nothing else."""
    ending, keep_logs = case.given

    assert run_until(ending, keep_logs=keep_logs) == case.want
    assert folders() == []


def test_the_newest_ten_logs_are_kept() -> None:
    """Logs of failed runs do not pile up: the oldest make room."""
    for day in range(11):
        older = kept_logs_root() / f"202001{day + 10}-000000-run-1"
        older.mkdir(parents=True)
        (older / "etcd.log").write_text(str(day))

    assert run_until(None, keep_logs=True) == [*(str(day) for day in range(2, 11)), "None"]
