"""`trainer-kai queue list`: what stands in Queues, as a tree."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.workloads.simulate_objects import queue
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import PodGroup, Queue, QueueResource, QueueResources
from trainer_kai.cli.commands.queue.write_plan import effective_access
from trainer_kai.cli.output.cluster_totals import cluster_total, quota_notes, total_lines
from trainer_kai.cli.output.queue_tables import as_json, as_text, read_queues
from trainer_kai.errors import ConfigError
from trainer_kai.policy.queueing.queue_access import EffectiveQueueAccess

STATUS = {
    "allocated": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "9500m"},
    "requested": {"cpu": "3", "memory": "2Gi", "nvidia.com/gpu": "12"},
}
SHOWN = """\
GPUS       QUOTA   LIMIT   USED   OVER QUOTA   WAITING   ACCESS
research   16      -       9.5    -            2.5       open (not annotated)
  team-a   8       12      9.5    1.5          2.5       closed
    deep   4       -       0      -            0         closed from team-a
  team-b   8       -       0      -            0         open"""


def queues(*fields: dict[str, Any]) -> list[Queue]:
    return [decode(Queue, encode(it)) for it in fields]


def notes_of(access: str) -> dict[str, str]:
    return {"trainer-kai.dev/access": access}


RESEARCH = queues(
    {**queue("team-a", 8, 12, "research", annotations=notes_of("closed")), "status": STATUS},
    {**queue("research", 16), "status": STATUS},
    queue("team-b", 8, -1, "research", annotations=notes_of("open")),
    queue("deep", 4, -1, "team-a"),
)


def access_of(given: list[Queue]) -> dict[str, EffectiveQueueAccess]:
    by_name = {it.metadata.name: it for it in given}
    return {name: effective_access(by_name, name) for name in by_name}


def shown(given: list[Queue], unannotated: str = "open") -> str:
    return as_text(read_queues(given)[0], access_of(given), unannotated)


def listed(given: list[Queue], unannotated: str = "open") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = as_json(read_queues(given)[0], access_of(given), unannotated)[
        "queues"
    ]
    return found


def test_they_are_shown_as_a_tree() -> None:
    """With the amounts of their status; a missing status is reported."""
    assert shown(RESEARCH) == SHOWN
    assert read_queues(RESEARCH)[1] == [
        "the scheduler has not reported the usage of deep, team-b yet"
    ]


def node_with(gpus: int, **spec: Any) -> Node:
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "96", "memory": "800Gi"}
    fields = {"metadata": {"name": "n"}, "spec": spec, "status": {"allocatable": amounts}}
    return decode(Node, encode(fields))


def test_with_nodes_there_are_fair_shares_and_who_borrows() -> None:
    """A cordoned node does not count."""
    total = cluster_total([node_with(16), node_with(8, unschedulable=True)])
    assert total.gpu == 16000
    given = [
        {
            **queue(name, quota),
            "status": {
                "allocated": {"nvidia.com/gpu": used},
                "requested": {"nvidia.com/gpu": requested},
            },
        }
        for name, quota, used, requested in (("a", 8, "12", "16"), ("b", 4, "1", "1"))
    ]
    flat = queues(*given, queue("rich", 200))
    amounts, _ = read_queues(flat, (), total)
    assert {it.name: it.fair_share[2] for it in amounts} == {"a": 15000, "b": 1000, "rich": 0}
    assert "FAIR SHARE" in as_text(amounts, access_of(flat), "open").splitlines()[0]
    assert [*total_lines(amounts, total)] == [
        "GPUs of nodes that take pods: 16, used 13, idle 3; quotas of the top queues: 212",
        (
            "GPUs over quota, which can be reclaimed: a (4); quotas that are not used: rich (200), "
            "b (3)"
        ),
    ]
    assert [*quota_notes(amounts, total)] == [
        (
            "queue rich has a quota of 200 GPU, more than all nodes have (16 GPU): `trainer-kai "
            "queue set rich --gpu-quota N`"
        )
    ]


def test_a_held_queue_is_marked() -> None:
    """Beside its access."""
    text = as_text(read_queues(RESEARCH)[0], access_of(RESEARCH), "open", {"deep": ", held"})
    assert text.splitlines()[3].endswith("closed from team-a, held")


def test_parts_of_gpus_are_shown_in_hundredths() -> None:
    """That is what queues are charged for shares of GPUs."""
    status = {"allocated": {"nvidia.com/gpu": "1130m"}, "requested": {"nvidia.com/gpu": "1830m"}}

    [line] = shown(queues({**queue("a", 1), "status": status}), "closed").splitlines()[1:]

    assert line.split()[:6] == ["a", "1", "-", "1.13", "0.13", "0.7"]


def test_a_long_name_is_shown_in_full() -> None:
    """It is needed for other commands, however wide the table gets."""
    name = "q" * 120
    assert name in shown(queues(queue(name, 8)))


def test_queues_without_any_bound_are_shown_too() -> None:
    """A fresh cluster has no others."""
    [line] = shown(queues(queue("all", -1)), "closed").splitlines()[1:]
    assert line.split() == ["all", "-", "-", "0", "-", "0", "closed", "(not", "annotated)"]
    assert shown([]) == "No queues exist. Create one with `trainer-kai queue create`."


def test_what_is_no_queue_of_the_tree_is_reported() -> None:
    """It takes no pods."""
    amounts, notes = read_queues(queues({**queue("a", 1, -1, "lost"), "status": STATUS}))

    assert amounts == []
    assert notes == ["ignored: Queue a has the parent queue lost, which does not exist"]


def test_a_circle_is_reported_once() -> None:
    """Whoever is in it."""
    circle = queues(queue("a", 1, -1, "b"), queue("b", 1, -1, "a"))

    assert read_queues(circle)[1] == ["ignored: Queue a is its own ancestor: a → b → a"]


def test_a_program_gets_numbers() -> None:
    """CPUs and GPUs are counted whole, memory in bytes; no bound is null."""
    assert listed(RESEARCH[:2])[1] == {
        "name": "team-a",
        "parent": "research",
        "quota": {"cpu": None, "memory": None, "gpu": 8},
        "limit": {"cpu": None, "memory": None, "gpu": 12},
        "fairShare": None,
        "allocated": {"cpu": 1.5, "memory": 2 * 2**30, "gpu": 9.5},
        "requested": {"cpu": 3, "memory": 2 * 2**30, "gpu": 12},
        "reclaimGoal": "fair-share",
        "access": "closed",
        "accessSaidBy": "team-a",
    }


def test_a_program_gets_who_may_use_a_queue() -> None:
    """By the queue that says so, which may be above; null is the setting of the site."""
    found = {it["name"]: (it["access"], it["accessSaidBy"]) for it in listed(RESEARCH)}

    assert found == {
        "deep": ("closed", "team-a"),
        "research": ("open", None),
        "team-a": ("closed", "team-a"),
        "team-b": ("open", "team-b"),
    }
    assert listed(RESEARCH, "closed")[1]["access"] == "closed"


def test_how_far_reclaim_gets_below_a_queue() -> None:
    """It is shown where it differs from KAI's, and reported where it is invalid."""
    goals = ("quota-only", "half")
    aims = [{"trainer-kai.dev/reclaim-goal": goal} for goal in goals]
    fields = [{**queue(name, 1), "status": STATUS} for name in "ab"]
    for one, notes in zip(fields, aims, strict=True):
        one["metadata"] = {**one["metadata"], "annotations": notes}
    found_notes = read_queues(queues(*fields))[1]

    assert [line.split("  ")[0] for line in shown(queues(*fields)).splitlines()] == [
        *("GPUS", "a (quota-only)", "b")
    ]
    assert [it["reclaimGoal"] for it in listed(queues(*fields))] == ["quota-only", "fair-share"]
    assert len(found_notes) == 1
    assert found_notes[0].startswith("queue b: annotation trainer-kai.dev/reclaim-goal is 'half'")


def podgroup(name: str, queue_name: str, used: str, requested: str) -> PodGroup:
    """Return a PodGroup with the status that the scheduler writes."""
    amounts = {"allocated": {"nvidia.com/gpu": used}, "requested": {"nvidia.com/gpu": requested}}
    fields = {
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"queue": queue_name},
        "status": {"resourcesStatus": amounts},
    }
    return decode(PodGroup, encode(fields))


GROUPS = [
    podgroup("a", "team-a", "4", "4"),
    podgroup("b", "team-a", "0", "4"),
    podgroup("c", "left", "8", "8"),
    podgroup("d", "finished", "0", "0"),
    podgroup("e", "there", "2", "2"),
    podgroup("f", "team-a", "odd", "1"),
]
WITH_MISSING = """\
GPUS               QUOTA   LIMIT   USED   OVER QUOTA   WAITING   ACCESS
left (ignored)                     8                   0
team-a (missing)                   4                   5
there              2       -       0      -            0         open (not annotated)"""


def test_a_name_that_no_queue_can_have_is_in_no_command() -> None:
    """Any user can write it into a PodGroup, for an administrator to copy."""
    _, notes = read_queues([], [podgroup("a", "x`rm y`\x1b[2J", "4", "4")])
    [note] = notes
    assert note == (
        "queue x`rm y`\\x1b[2J does not exist, and PodGroups use it: no queue can have this name, "
        "so move their workloads to another queue"
    )


def test_a_queue_in_use_that_is_gone_is_shown() -> None:
    """With what its PodGroups have; it was in no table, while they held the GPUs."""
    some = queues(queue("there", 2), queue("left", 8, -1, "gone"))
    amounts, notes = read_queues(some, GROUPS)
    answer = as_json(amounts, access_of(some), "open")

    assert as_text(amounts, access_of(some), "open") == WITH_MISSING
    assert "ignored: Queue left has the parent queue gone, which does not exist" in notes
    assert [it for it in notes if it.startswith("queue team-a does not exist, and PodGroups")]
    assert [it["name"] for it in answer["queues"]] == ["there"]
    assert [(it["name"], it["exists"], it["allocated"]["gpu"]) for it in answer["missing"]] == [
        ("left", True, 8),
        ("team-a", False, 4),
    ]


def test_small_numbers_are_not_zero() -> None:
    """A CPU limit of 4 is 4 millicores; it was shown as 0."""
    [one] = queues(queue("a", 1))
    resources = QueueResources(
        gpu=QueueResource(quota=Decimal("0.25"), limit=Decimal(-1)),
        cpu=QueueResource(limit=Decimal(4)),
    )
    text = shown([replace(one, spec=replace(one.spec, resources=resources))])

    assert [line.split()[:3] for line in text.splitlines() if line.startswith("a ")] == [
        ["a", "0.25", "-"],
        ["a", "0", "0.004"],
        ["a", "0Gi", "0Gi"],
    ]


def test_what_cannot_be_read_is_named() -> None:
    """Every fault at once."""
    broken = {"allocated": {"cpu": "x"}, "requested": {"nvidia.com/gpu": "y"}}

    with pytest.raises(ConfigError) as raised:
        read_queues(queues({**queue("a"), "status": broken}))

    paths = [fault.path for fault in raised.value.faults]
    assert paths == ["Queue a: status.allocated", "Queue a: status.requested"]
