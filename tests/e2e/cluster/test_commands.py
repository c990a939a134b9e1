"""What the command line says about clusters; none of them runs anything but this test."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.cluster import commands, registry
from e2e.cluster.__main__ import main, parser
from e2e.cluster.commands import CommandError
from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.registry import Note
from tests.support.case import Case, ids

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


# the clusters there are, the one asked for -> the one meant, or why none is
US = commands._US  # differs with the place of the Python that runs
PICKS = [
    Case("the only one is meant", (["a"], None), "a"),
    Case("a name says which", (["a", "b"], "b"), "b"),
    Case(
        "among several one must be named",
        (["a", "b"], None),
        "several clusters are up: name one; there is a, b",
    ),
    Case("a wrong name", (["a", "b"], "c"), "no cluster is called c; there is a, b"),
    Case("a wrong name is not the only one", (["a"], "c"), "no cluster is called c; there is a"),
    Case("none to pick", ([], None), f"no cluster is up: `{US} up` starts one"),
    Case("none of any name", ([], "a"), f"no cluster is up: `{US} up` starts one"),
]


@pytest.mark.parametrize("case", PICKS, ids=ids)
def test_which_cluster_is_meant(case: Case[tuple[Sequence[str], str | None], str]) -> None:
    """A name may be left out where there is no doubt; else the answer says what there is."""
    names, asked = case.given
    for name in names:
        make_cluster(name)

    try:
        picked = commands._pick(asked, registry.known()).name
    except CommandError as error:
        picked = str(error)

    assert picked == case.want


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


def test_status_shows_who_runs_and_who_died(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that died is told, and a cluster that nobody holds is swept away."""
    make_cluster("mine")
    make_cluster("lost", owner=NOBODY)

    commands.status()

    heading, etcd = capsys.readouterr().out.splitlines()
    assert heading.startswith("mine: ready, 0:00 old, held by hand")
    assert etcd.split() == ["etcd", "GONE", str(os.getpid())]


def test_the_kubeconfig_is_the_administrator_s() -> None:
    """Who asks for nobody in particular gets everything."""
    folder = make_cluster("one")

    assert commands.kubeconfig_path(None, None) == folder / "kubeconfigs" / "admin.yaml"


@pytest.mark.parametrize("wrong", ["default", "/default", "default/"])
def test_an_account_has_a_namespace(wrong: str) -> None:
    """Half a ServiceAccount is refused before anything is asked of the API server."""
    make_cluster("one")

    with pytest.raises(CommandError, match=f"takes NAMESPACE/NAME, not '{wrong}'"):
        commands.kubeconfig_path(None, wrong)


@pytest.fixture
def logs() -> Path:
    """Return the log folder of a cluster with two logs."""
    folder = make_cluster("one") / "logs"
    folder.mkdir()
    (folder / "etcd.log").write_text("a\nb\nc\n")
    (folder / "kwok.log").write_text("d\n")
    return folder


# the program asked for, how many lines -> what is printed
ENDS = [
    Case("the end of one log", ("etcd", 2), ["==> {}/etcd.log <==", "b", "c", ""]),
    Case(
        "the end of every log",
        (None, 1),
        ["==> {}/etcd.log <==", "c", "", "==> {}/kwok.log <==", "d", ""],
    ),
]


@pytest.mark.parametrize("case", ENDS, ids=ids)
def test_logs_are_shown_from_their_end(
    logs: Path,
    capsys: pytest.CaptureFixture[str],
    case: Case[tuple[str | None, int], list[str]],
) -> None:
    """Each log is headed by its file, so that the rest can be read there."""
    commands.logs(None, *case.given)

    assert capsys.readouterr().out.splitlines() == [line.format(logs) for line in case.want]


@pytest.mark.usefixtures("logs")
def test_a_log_that_is_not_there() -> None:
    """The answer to a wrong name is the right ones."""
    with pytest.raises(CommandError, match="no log of 'etdc'; there is etcd, kwok"):
        commands.logs(None, "etdc", 1)


def test_what_cannot_be_done_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A person's mistake is exit status 2 and no traceback."""
    assert main(["down", "nothing"]) == 2

    assert capsys.readouterr().err == (f"e2e.cluster: no cluster is up: `{US} up` starts one\n")


def test_what_can_be_done_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """No cluster is an answer and no failure."""
    assert main(["status"]) == 0

    assert capsys.readouterr().out == "no cluster is up\n"


REFUSED = [
    Case("fewer nodes than none", ["--nodes", "-1"], "argument --nodes: -1 is below zero"),
    Case("no number", ["--nodes", "x"], "argument --nodes: 'x' is not a number"),
    Case(
        "a name that would leave the folder",
        ["../chain"],
        "argument name: '../chain' is not lower-case letters, digits and dashes",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_what_cannot_be_asked_is_refused(
    case: Case[list[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments are refused by name before anything starts."""
    with pytest.raises(SystemExit):
        parser().parse_args(["up", *case.given])

    assert case.want in capsys.readouterr().err


def test_a_reader_who_has_enough_is_no_failure() -> None:
    """As of `status | head -1`: no traceback."""
    make_cluster("one")
    command = [sys.executable, "-m", "e2e.cluster", "status"]
    reader, writer = os.pipe()
    os.close(reader)

    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        _, errors = process.communicate()

    assert (process.returncode, errors) == (141, "")
