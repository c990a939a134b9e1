"""What stays on a PodGroup of its last eviction."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import LAST_EVICTION_RECORD
from trainer_kai.policy.podgroups.eviction_record import (
    LastEviction,
    NodeMoves,
    encode_last_eviction,
    last_eviction_of,
)

RULES = Path(__file__).parents[4] / "docs" / "rules.md"


def podgroup(annotation: str | None = None) -> PodGroup:
    annotations = {} if annotation is None else {LAST_EVICTION_RECORD: annotation}
    return PodGroup(metadata=Meta(namespace="team", name="pg", annotations=annotations))


def test_an_eviction_is_written_and_read() -> None:
    """Evictions of one PodGroup are counted, for each is a restart."""
    eviction = LastEviction(
        at="2026-01-05T09:00:00+00:00",
        action="reclaim",
        queue="guests",
        preemptor="team/owner",
        preemptor_queue="owners",
        gpus=8,
        lost_gpu_seconds=3600,
        message="a reason",
    )
    first = encode_last_eviction(podgroup(), eviction)
    assert json.loads(first) == {
        "at": "2026-01-05T09:00:00+00:00",
        "action": "reclaim",
        "rule": "30",
        "queue": "guests",
        "for": "team/owner",
        "forQueue": "owners",
        "gpus": 8,
        "lostGpuSeconds": 3600,
        "evictions": 1,
        "message": "a reason",
    }
    second = encode_last_eviction(podgroup(first), eviction)
    found = last_eviction_of(podgroup(second))
    assert found is not None
    assert (found.preemptor, found.evictions, found.rule) == ("team/owner", 2, "30")


MOVES = [  # the move before, and the next one -> how many there were in a row
    (None, "2026-01-05T09:00:00+00:00", 1),
    (NodeMoves(count=2, at="2026-01-05T08:00:00+00:00"), "2026-01-05T09:00:00+00:00", 3),
    (NodeMoves(count=2, at="2026-01-04T09:00:00+00:00"), "2026-01-05T09:00:00+00:00", 1),
    (NodeMoves(count=2, at="soon"), "2026-01-05T09:00:00+00:00", 1),
]


@pytest.mark.parametrize(("before", "at", "want"), MOVES)
def test_moves_off_nodes_are_counted_in_a_row(before: NodeMoves | None, at: str, want: int) -> None:
    """Within a day; another eviction in between keeps the count."""
    first = LastEviction(moved=before) if before else LastEviction()
    text = msgspec.json.encode(first).decode()
    moved = encode_last_eviction(podgroup(text), LastEviction(at=at, action="nodeleaving"))
    reclaimed = encode_last_eviction(podgroup(moved), LastEviction(at="later", action="reclaim"))

    for found in map(last_eviction_of, (podgroup(moved), podgroup(reclaimed))):
        assert found is not None
        assert found.moved == NodeMoves(count=want, at=at)


ACTIONS = ["reclaim", "preempt", "consolidation", "stalegangeviction", "queuedrain", "nodeleaving"]


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_names_its_rule(action: str) -> None:
    """The number is that of a section of docs/rules.md."""
    found = json.loads(encode_last_eviction(podgroup(), LastEviction(action=action)))
    assert re.search(rf"^### {found['rule']} ", RULES.read_text(), re.MULTILINE)


def test_its_length_is_bounded() -> None:
    """Names of queues and budgets make a message as long as users like."""
    text = encode_last_eviction(podgroup(), LastEviction(message="ü" * 100_000))
    assert len(text.encode()) < 2048


@pytest.mark.parametrize("text", [None, "", "no JSON", "[]", '{"evictions": "many"}', "[" * 9999])
def test_what_cannot_be_read_is_no_eviction(text: str | None) -> None:
    """The annotation is for people: what another version wrote is no fault."""
    assert last_eviction_of(podgroup(text)) is None
