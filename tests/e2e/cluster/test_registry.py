"""Which clusters there are, and which have gone without saying so."""

import asyncio
import contextlib
import os
import threading
import time

import pytest

from e2e.cluster import registry
from e2e.cluster.paths import clusters_root, kept_logs_root
from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.registry import Note, RunFolder

US = identify(os.getpid())
ENDED = Identity(os.getpid(), born_ticks=1)  # our number, of a process that ended before us
pytestmark = pytest.mark.usefixtures("cache")  # keep away from the clusters of this machine


def make_note(name: str, owner: Identity | None, program: Identity | None) -> None:
    """Make a run folder with a note of who runs in it."""
    (clusters_root() / name).mkdir(parents=True)
    note = Note.of_us(name, "https://127.0.0.1:1", by_hand=True)
    note._replace(owner=owner or ENDED, programs={"etcd": program or ENDED}).write()


def folders() -> list[str]:
    """Return the names of the run folders."""
    return sorted(folder.name for folder in clusters_root().iterdir())


def test_names_are_numbered() -> None:
    """A name that is taken gets a number, and one that is free again is used again."""
    with RunFolder("chain") as one, RunFolder("chain") as two:
        with RunFolder("chain") as three:
            assert [one.name, two.name, three.name] == ["chain", "chain-2", "chain-3"]
            assert folders() == ["chain", "chain-2", "chain-3"]
        with RunFolder("chain") as again, RunFolder("other") as other:
            assert [again.name, other.name] == ["chain-3", "other"]

    assert folders() == []


@pytest.mark.parametrize("program", [US, ENDED], ids=["it runs", "nothing runs"])
@pytest.mark.parametrize("owner", [US, ENDED], ids=["held", "held by an ended process"])
def test_sweep_removes_only_what_is_dead(owner: Identity, program: Identity) -> None:
    """A folder goes when no process holds the cluster and nothing of it runs."""
    make_note("one", owner, program)

    registry.sweep()

    assert folders() == ([] if owner == program == ENDED else ["one"])


def test_sweep_gives_a_new_cluster_time() -> None:
    """A folder without a note is one that is being made, until it has been that for too long."""
    for name in ("young", "old"):
        (clusters_root() / name).mkdir(parents=True)
    long_ago = time.time() - 61
    os.utime(clusters_root() / "old", (long_ago, long_ago))

    registry.sweep()

    assert folders() == ["young"]


def test_clusters_may_go_while_they_are_looked_at() -> None:
    """A cluster that ends between two looks at its folder is gone, and that is no error."""
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            make_note("brief", US, US)
            registry.remove(clusters_root() / "brief")

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


@pytest.mark.parametrize("keep", [False, True], ids=["", "it was told to keep its logs"])
@pytest.mark.parametrize(
    ("ending", "failed"),
    [
        (None, False),
        (ValueError, True),
        (KeyboardInterrupt, False),
        (asyncio.CancelledError, False),
        (GeneratorExit, False),
    ],
)
def test_logs_of_failures_are_kept(
    ending: type[BaseException] | None, *, failed: bool, keep: bool
) -> None:
    """The folder is gone whatever happened; its logs survive a failure and nothing else."""
    assert run_until(ending, keep_logs=keep) == ([str(ending)] if failed or keep else [])
    assert folders() == []


def test_the_newest_ten_logs_are_kept() -> None:
    """Logs of failed runs do not pile up: the oldest make room."""
    for day in range(11):
        older = kept_logs_root() / f"202001{day + 10}-000000-run-1"
        older.mkdir(parents=True)
        (older / "etcd.log").write_text(str(day))

    assert run_until(None, keep_logs=True) == [*(str(day) for day in range(2, 11)), "None"]
