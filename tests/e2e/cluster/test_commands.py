"""Which clusters the command `down` ends, and which it leaves to the tests that run them."""

import os
from typing import TYPE_CHECKING

import pytest

from e2e.cluster import commands, registry
from e2e.cluster.commands import CommandError
from e2e.cluster.paths import clusters_root
from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.registry import Note

if TYPE_CHECKING:
    import subprocess

ENDED = Identity(os.getpid(), born_ticks=1)  # our number, of a process that ended before us
pytestmark = pytest.mark.usefixtures("cache")  # keep away from the clusters of this machine


def _make_cluster(owner: Identity, program: Identity = ENDED, *, by_hand: bool) -> None:
    (clusters_root() / "one").mkdir(parents=True)
    note = Note.of_us("one", "https://127.0.0.1:1", by_hand=by_hand)
    note._replace(owner=owner, ready=True, programs={"etcd": program}).write()


def test_a_test_s_cluster_is_not_taken_down(sleeper: "subprocess.Popen[bytes]") -> None:
    """Who runs the test ends it; to end its cluster below it would only puzzle."""
    holder = identify(sleeper.pid)
    assert holder is not None
    _make_cluster(holder, by_hand=False)

    message = rf"one belongs to a running test \(process {sleeper.pid}\): end that"
    with pytest.raises(CommandError, match=message):
        commands.down("one", every=False)
    commands.down(None, every=True)

    assert (list(registry.known()), sleeper.poll()) == (["one"], None)


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "by a test"])
def test_what_outlived_its_holder_is_ended(
    sleeper: "subprocess.Popen[bytes]", by_hand: bool
) -> None:
    """A program that is left although no process holds its cluster ends by `down`."""
    program = identify(sleeper.pid)
    assert program is not None
    _make_cluster(ENDED, program, by_hand=by_hand)

    commands.down("one", every=False)

    assert not program.alive
    assert registry.known() == {}
