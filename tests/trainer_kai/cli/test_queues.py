"""`trainer-kai queue list`: what stands in Queues, as a tree."""

from typing import Any

import pytest

from tests.support.world import queue
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.queue import Queue
from trainer_kai.cli.queuetables import as_json, as_text, read_queues
from trainer_kai.errors import ConfigError

STATUS = {
    "allocated": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "9500m"},
    "requested": {"cpu": "3", "memory": "2Gi", "nvidia.com/gpu": "12"},
}
SHOWN = """\
GPUS       QUOTA   LIMIT   USED   BORROWED   WAITING
research   16      -       9.5    -          2.5
  team-a   8       12      9.5    1.5        2.5
  team-b   8       -       0      -          0"""


def queues(*fields: dict[str, Any]) -> list[Queue]:
    """Read some queues."""
    return [decode(Queue, encode(it)) for it in fields]


RESEARCH = queues(
    {**queue("team-a", 8, 12, "research"), "status": STATUS},
    {**queue("research", 16), "status": STATUS},
    queue("team-b", 8, -1, "research"),
)


def test_they_are_shown_as_a_tree() -> None:
    """With what their status says; what nobody has written is told."""
    ends, notes = read_queues(RESEARCH)

    assert as_text(ends) == SHOWN
    assert notes == ["the scheduler has not written what these have: team-b"]


def test_queues_without_any_bound_are_shown_too() -> None:
    """A fresh cluster has no others."""
    assert as_text(read_queues(queues(queue("all", -1)))[0]).splitlines()[1].split() == [
        *("all", "-", "-", "0", "-", "0")
    ]
    assert as_text([]) == "there are no queues"


def test_what_is_no_queue_of_the_tree_is_told() -> None:
    """It takes nobody."""
    ends, notes = read_queues(queues({**queue("a", 1, -1, "lost"), "status": STATUS}))

    assert ends == []
    assert notes == ["left aside: queue a has the parent lost, which does not exist"]


def test_a_circle_is_told_once() -> None:
    """Whoever is in it."""
    circle = queues(queue("a", 1, -1, "b"), queue("b", 1, -1, "a"))

    assert read_queues(circle)[1] == ["left aside: queue a is above itself: a → b → a"]


def test_a_program_gets_numbers() -> None:
    """CPUs and GPUs are counted whole, memory in bytes; no bound is null."""
    assert as_json(read_queues(RESEARCH[:2])[0])["queues"][1] == {
        "name": "team-a",
        "parent": "research",
        "quota": {"cpu": None, "memory": None, "gpu": 8},
        "limit": {"cpu": None, "memory": None, "gpu": 12},
        "allocated": {"cpu": 1.5, "memory": 2 * 2**30, "gpu": 9.5},
        "requested": {"cpu": 3, "memory": 2 * 2**30, "gpu": 12},
        "reclaimGoal": "fair-share",
    }


def test_how_far_reclaim_gets_below_a_queue() -> None:
    """It is shown where it is not as KAI has it, and told where it cannot be meant."""
    goals = ("quota-only", "half")
    aims = [{"trainer-kai.dev/reclaim-goal": goal} for goal in goals]
    fields = [{**queue(name, 1), "status": STATUS} for name in "ab"]
    for one, notes in zip(fields, aims, strict=True):
        one["metadata"] = {**one["metadata"], "annotations": notes}
    ends, told = read_queues(queues(*fields))

    assert [line.split("  ")[0] for line in as_text(ends).splitlines()] == [
        *("GPUS", "a (quota-only)", "b")
    ]
    assert [it["reclaimGoal"] for it in as_json(ends)["queues"]] == ["quota-only", "fair-share"]
    assert len(told) == 1
    assert told[0].startswith("queue b: annotation trainer-kai.dev/reclaim-goal is 'half'")


def test_what_cannot_be_read_is_named() -> None:
    """Every fault at once."""
    broken = {"allocated": {"cpu": "x"}, "requested": {"nvidia.com/gpu": "y"}}

    with pytest.raises(ConfigError) as raised:
        read_queues(queues({**queue("a"), "status": broken}))

    paths = [fault.path for fault in raised.value.faults]
    assert paths == ["Queue a: status.allocated", "Queue a: status.requested"]
