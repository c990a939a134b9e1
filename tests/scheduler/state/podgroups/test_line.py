"""The annotation of a place in the line: written for a plan, and read for the next one."""

import json
from typing import Any

import pytest

from scheduler.core.model.line import LineRecord
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.commands import PodGroupCommands, commands_from_plan
from scheduler.state.podgroups.line import write_line
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import NOW, encode_objects, group, node, pod, queue
from trainer_kai.api.meta import Key

POLICIES = build_policies(PolicySelection())
GPUS = {"nvidia.com/gpu": "8"}
SINCE = NOW - 3600


def encoded(annotation: str | None, *more: Any, order: str = "reserve") -> EncodedSnapshot:
    """Return two nodes, one of them in use, and a PodGroup that waits for both."""
    meta = {} if annotation is None else {"annotations": {"trainer-kai.dev/line": annotation}}
    spec = {"quota": -1, "limit": -1}
    return encode_objects(
        node("a"),
        node("b"),
        queue(
            "line",
            meta={"annotations": {"trainer-kai.dev/queue-order": order}},
            resources={"gpu": spec, "cpu": spec, "memory": spec},
        ),
        group("busy", queue="line"),
        pod("busy-0", "busy", node="a", asks=GPUS),
        group("large", queue="line", minMember=2, meta=meta),
        *(pod(f"large-{i}", "large", asks=GPUS) for i in range(2)),
        *more,
    )


def written(found: EncodedSnapshot) -> dict[str, str | None]:
    commands = commands_from_plan(found, plan(found.snapshot, POLICIES)).podgroups
    return {it.group.name: it.line_annotation for it in commands}


def text(**fields: Any) -> str:
    return json.dumps({"since": SINCE, "request": "line 2 16000", **fields})


def test_a_place_survives() -> None:
    """As it was written, with the names of its nodes."""
    first = written(encoded(None))["large"]
    assert first is not None
    assert json.loads(first) == {"since": NOW, "request": "line 2 16000"}
    second = written(encoded(text()))["large"]
    assert second is not None
    assert json.loads(second) == json.loads(
        text(nextSince=NOW, nodes=["b"], gpus=8000, at=NOW, nodesSince=[NOW])
    )
    again = encoded(second)
    assert again.snapshot.lines == {
        again.podgroup_keys.index(Key("ns", "large")): LineRecord(
            SINCE, "line 2 16000", NOW, (1,), 8000, NOW, nodes_since=(NOW,)
        )
    }
    assert written(again) == {}


def test_a_place_ends_with_the_order_of_the_queue() -> None:
    """The annotation is removed."""
    assert written(encoded(text(), order="best-effort")) == {"large": ""}


def test_a_place_of_a_podgroup_that_waits_for_nothing_is_removed() -> None:
    """It has no pods."""
    meta = {"annotations": {"trainer-kai.dev/line": text()}}
    found = encoded(None, group("idle", meta=meta))
    assert found.outdated_lines == {Key("ns", "idle"): ""}
    assert (
        PodGroupCommands(Key("ns", "idle"), None, (), (), None, line_annotation="")
        in commands_from_plan(found, plan(found.snapshot, POLICIES)).podgroups
    )


def test_without_pods_the_back_off_stays() -> None:
    """Otherwise a TrainJob that is suspended and resumed would wait for nothing."""
    tried = text(tries=2, againAt=NOW + 900, nextSince=SINCE)
    meta = {"annotations": {"trainer-kai.dev/line": tried}}
    (paused,) = encoded(None, group("idle", meta=meta)).outdated_lines.values()
    assert json.loads(paused) == json.loads(text(tries=2, againAt=NOW + 900, pausedAt=NOW))
    meta = {"annotations": {"trainer-kai.dev/line": paused}}
    assert not encoded(None, group("idle", meta=meta)).outdated_lines


# an annotation -> what is read of it
READ: list[Case[str, LineRecord | None]] = [
    Case(
        "all fields",
        text(tries=3, againAt=9, used=4),
        LineRecord(SINCE, "line 2 16000", used=4, tries=3, again_at=9),
    ),
    Case(
        "a node that is gone",
        text(nodes=["z", "b"], at=7),
        LineRecord(SINCE, "line 2 16000", nodes=(1,), at=7, nodes_since=(7,)),
    ),
    Case("no JSON", "soon", None),
    Case("without a time", '{"request": ""}', None),
    Case("from the future", text(since=NOW + 1), LineRecord(NOW, "line 2 16000")),
    Case(
        "next from a far future",
        text(nextSince=10**12, at=10**12, pausedAt=10**12, againAt=10**12),
        LineRecord(
            SINCE,
            "line 2 16000",
            next_since=NOW,
            at=NOW,
            paused_at=NOW,
            again_at=NOW + 24 * 3600,
        ),
    ),
    Case("below zero", text(used=-1), None),
    Case("too large", text(used=10**30), None),
    Case("too many tries are cut", text(tries=10**6), LineRecord(SINCE, "line 2 16000", tries=64)),
]


@pytest.mark.parametrize("case", READ, ids=ids)
def test_an_annotation_is_read(case: Case[str, LineRecord | None]) -> None:
    """One that cannot be read counts as none."""
    lines = encoded(case.given).snapshot.lines
    assert [*lines.values()] == ([case.want] if case.want else [])


def test_without_a_record_the_annotation_is_empty() -> None:
    """Then it is removed."""
    assert write_line(None, ()) == ""
