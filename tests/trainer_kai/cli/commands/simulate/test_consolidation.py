"""What becomes of consolidated pods, plan after plan."""

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.terminal import Terminal
from tests.support.workloads.simulate_objects import group, node, pod, queue
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

Document = dict[str, Any]
SITE = [queue("team-a"), node("n1", 4), node("n2", 4)]


def at(document: Document, what: str, cycle: int = 0) -> dict[str, str]:
    """Return the node of each pod that was bound, or nominated."""
    return {it["pod"]: it["node"] for it in document["cycles"][cycle][what]}


def fragmented(gpus: int = 4) -> list[Document]:
    """Return two nodes, each with a PodGroup of one pod, and a PodGroup that needs a whole node."""
    older = group("old"), pod("old-0", "old", on="n1"), group("new"), pod("new-0", "new", on="n2")
    return [*SITE, *older, group("want"), pod("want-0", "want", gpus)]


def test_who_is_moved_comes_back_elsewhere_and_that_is_all() -> None:
    """The place is reserved while its pod is terminating, and no pod moves again."""
    document = simulate(fragmented(), SimulationOptions(cycles=4))

    (moved,) = document["cycles"][0]["evictions"]
    assert (moved["pod"], moved["action"]) == ("old-0", "consolidation")
    assert (
        moved["reason"]
        == "default/want gets its resources: default/old is relocated, and resources elsewhere are "
        "reserved for it"
    )
    assert at(document, "nominations") == {"want-0": "n1"}
    (reserved_place,) = document["cycles"][0]["reservations"]
    assert (reserved_place["podGroup"], reserved_place["node"], reserved_place["cause"]) == (
        "old",
        "n2",
        "move",
    )
    assert at(document, "binds", 1) == {"old-0": "n2", "want-0": "n1"}
    assert document["cycles"][1]["reservations"] == []
    for cycle in document["cycles"][2:]:
        assert (cycle["binds"], cycle["evictions"], cycle["nominations"]) == ([], [], [])


@pytest.mark.parametrize("relocate", ["any", "allowed"])
def test_nobody_is_moved_unasked_if_that_is_wanted(
    relocate: Literal["any", "allowed"], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the running scheduler does it; other relocations have a note."""
    terminal = Terminal("simulate", tmp_path, capsys)
    file = terminal.write("a.yaml", *fragmented())

    code, out, err = terminal.run("-f", file, "--relocate", relocate)

    assert (code, "evicted by consolidation" in out) == (0, relocate == "any")
    assert ("only TrainJobs of queues that allow it" in err) == (relocate == "any")


def test_reserved_places_of_moved_pods_are_taken_at_the_end_of_the_plan() -> None:
    """As those of everybody else; and one that never comes back has none."""
    document = simulate(fragmented(), SimulationOptions(evicted_pods="vanish", cycles=2))

    assert [it["idleGpus"] for it in simulate(fragmented())["nodes"]] == [0, 2]
    assert [it["idleGpus"] for it in document["nodes"]] == [0, 3]


@pytest.mark.parametrize("old", [["--moves", "offered"], ["--moves=any"], ["--moves"]])
def test_the_old_name_of_the_flag_is_refused(
    old: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the new one, and exit code 2."""
    terminal = Terminal("simulate", tmp_path, capsys)

    with pytest.raises(SystemExit) as end:
        terminal.run("-f", "-", *old)

    assert end.value.code == 2
    assert "error: --moves was renamed; use --relocate\n" in capsys.readouterr().err
