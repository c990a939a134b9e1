"""The record of nodes that refused pods: growing times, and bounds."""

import json
from typing import Final

from trainer_kai.policy.podgroups.avoided_nodes import (
    MOST_AVOIDED_NODES,
    AvoidedNodeRecord,
    AvoidTimes,
    ends_at,
    kept_records,
    read_avoided_nodes,
    with_refusal,
    write_avoided_nodes,
)

NOW: Final = 1_767_600_000  # 2026-01-05T08:00:00Z
TIMES: Final = AvoidTimes(300, 14_400)


def refused(times: int, *, uid: str = "u") -> AvoidedNodeRecord:
    record = None
    for _ in range(times):
        record = with_refusal(record, "u", "OutOfcpu", NOW, TIMES)
    return with_refusal(record, uid, "OutOfcpu", NOW, TIMES)


def test_the_time_doubles_up_to_a_bound() -> None:
    lengths = [ends_at(refused(times)) - NOW for times in range(8)]
    assert lengths == [300, 600, 1200, 2400, 4800, 9600, 14_400, 14_400]
    assert ends_at(refused(500)) - NOW == 14_400


def test_another_node_of_that_name_begins_anew() -> None:
    assert refused(3, uid="other").times == 1


def test_what_is_written_is_read() -> None:
    records = {"b": refused(0), "a": refused(2)}
    text = write_avoided_nodes(records)
    assert read_avoided_nodes(text) == records
    assert json.loads(text)["a"] == {
        "uid": "u",
        "at": "2026-01-05T08:00:00Z",
        "until": "2026-01-05T08:20:00Z",
        "times": 3,
        "reason": "OutOfcpu",
    }
    assert write_avoided_nodes({}) == ""


def test_forgotten_is_what_ended_long_ago() -> None:
    old = with_refusal(None, "u", "OutOfcpu", NOW - 14_400 - 300, TIMES)
    known = with_refusal(None, "u", "OutOfcpu", NOW - 14_400 - 299, TIMES)
    assert kept_records({"a": old, "b": known}, NOW, TIMES) == {"b": known}


def test_the_annotation_is_bounded() -> None:
    """Also with the longest names and reasons: the API server takes 256 KiB of annotations."""
    long = with_refusal(None, "u" * 36, "r" * 5000, NOW, TIMES)
    records = {f"{number:03}{'n' * 250}": long for number in range(200)}
    soon = with_refusal(None, "", "", NOW - 200, TIMES)
    kept = kept_records({**records, "z": soon}, NOW, TIMES)
    assert len(kept) == MOST_AVOIDED_NODES
    assert "z" not in kept
    text = write_avoided_nodes(kept)
    assert len(text) < 2**16
    assert read_avoided_nodes(text) == kept
