"""Which clusters the command `down` ends, and which it leaves to the tests that run them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import commands, registry
from e2e.cluster.commands import CommandError
from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.registry import Note

NOBODY = Identity(os.getpid(), born_ticks=1)  # our number, but somebody before us


@pytest.fixture(autouse=True)
def _own_cache(cache: Path) -> None:
    """Keep away from the clusters of this machine."""
    assert registry.clusters_root() == cache / "clusters"


def make_cluster(
    name: str,
    *,
    by_hand: bool = True,
    owner: Identity | None = None,
    program: Identity = NOBODY,
) -> Path:
    """Make the run folder of a cluster that we hold, or somebody else."""
    (registry.clusters_root() / name).mkdir(parents=True)
    note = Note.of_us(name, "https://127.0.0.1:1", by_hand=by_hand)
    note = note._replace(owner=owner or note.owner, ready=True, programs={"etcd": program})
    note.write()
    return note.folder


@pytest.fixture
def sleeper() -> Iterator[Identity]:
    """Return a process that does nothing but run."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        yield identity
        process.kill()


def test_a_test_s_cluster_is_not_taken_down(sleeper: Identity) -> None:
    """Who runs the test ends it; to end its cluster below it would only puzzle."""
    make_cluster("one", by_hand=False, owner=sleeper)

    message = rf"one belongs to a running test \(process {sleeper.pid}\): end that"
    with pytest.raises(CommandError, match=message):
        commands.down("one", every=False)

    assert sleeper.alive


def test_down_all_leaves_tests_alone(sleeper: Identity) -> None:
    """Only what was started by hand is ended at once."""
    make_cluster("one", by_hand=False, owner=sleeper)

    commands.down(None, every=True)

    assert list(registry.known()) == ["one"]
    assert sleeper.alive


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "by a test"])
def test_what_outlived_its_holder_is_ended(sleeper: Identity, by_hand: bool) -> None:
    """A program that is left although nobody holds its cluster ends by `down`, whosever it was."""
    make_cluster("one", by_hand=by_hand, owner=NOBODY, program=sleeper)

    commands.down("one", every=False)

    assert not sleeper.alive
    assert registry.known() == {}
