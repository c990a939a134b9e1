"""Case files are read and checked, and a wrong decision is reported as a fault."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cases.case_files import (
    SchedulerCase,
    all_cases,
    check_all,
    faults,
    read_case,
    rule_fault,
    unknown_names,
)
from tests.support import case as table
from tests.support.repository import ROOT

RULES = (ROOT / "docs" / "rules.md").read_text()

CYCLE: dict[str, Any] = {
    "binds": [],
    "evictions": [],
    "nominations": [],
    "reservations": [],
    "unschedulable": [],
}


def answer(*cycles: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Write what a simulation would return; what is left out is empty."""
    filled = [{**CYCLE, **cycle} for cycle in cycles]
    return {"schema": "trainer-kai/simulate/v1", "cycles": filled, "queues": [], **more}


def bound(
    pod: str, node: str, namespace: str = "default", gpus: Sequence[str] = ()
) -> dict[str, Any]:
    """Write where a pod is bound, or nominated."""
    return {"namespace": namespace, "pod": pod, "node": node, "gpuGroups": [*gpus]}


def evicted(pod: str) -> dict[str, str]:
    """Write the evicted pods."""
    return {"namespace": "default", "pod": pod, "reason": "", "action": "reclaim"}


def reservation(node: str, count: int) -> dict[str, Any]:
    """Write what is reserved for the launcher."""
    where = {"namespace": "default", "podGroup": "g", "subGroup": "launcher"}
    return {**where, "node": node, "count": count, "cause": "anticipated"}


def refused(reason: str, message: str = "") -> dict[str, Any]:
    """Write why a group is not placed."""
    where = {"namespace": "default", "podGroup": "g"}
    return {"unschedulable": [{**where, "reason": reason, "message": message}]}


def shares(gpu: float) -> dict[str, Any]:
    """Write the fair share of a queue."""
    return {"queues": [{"name": "team", "fairShare": {"gpu": gpu, "cpu": 1}}]}


def of_pods(*names: str) -> list[dict[str, Any]]:
    """Return pods of one group, and two that are in none; one of these names a GPU."""
    meta = {"annotations": {"pod-group-name": "g"}}
    pods = [{"kind": "Pod", "metadata": {"name": name, **meta}} for name in names]
    pods.append({"kind": "Pod", "metadata": {"name": "bare", "uid": "7"}})
    running = {"name": "running", "uid": "8", "labels": {"runai-gpu-group": "gpu-1"}}
    return [*pods, {"kind": "Pod", "metadata": running}]


# (what is expected, what a simulation returned) -> the differences
ANSWERS: list[table.Case[tuple[dict[str, Any], dict[str, Any]], list[str]]] = [
    table.Case("nothing expected of nothing", ({}, answer({})), []),
    table.Case(
        "another schema", ({}, {"schema": "v2"}), ["schema: 'v2', not 'trainer-kai/simulate/v1'"]
    ),
    table.Case(
        "a bind as it should be, in a namespace, on any node",
        (
            {"binds": {"a": "n", "x/a": "m", "b": None}},
            answer({"binds": [bound("a", "n"), bound("a", "m", "x"), bound("b", "k")]}),
        ),
        [],
    ),
    table.Case(
        "binds that are too many, elsewhere, or not there",
        ({"binds": {"a": "n", "b": None}}, answer({"binds": [bound("a", "m"), bound("c", "n")]})),
        [
            "binds: a is m, and should be n",
            "binds: b is not there, and should be anything",
            "binds: c is n, and should not be there",
        ],
    ),
    table.Case(
        "no bind is expected",
        ({"binds": {}}, answer({"binds": [bound("a", "n")]})),
        ["binds: a is n, and should not be there"],
    ),
    table.Case(
        "binds of a later cycle do not count",
        ({"binds": {"a": "n"}}, answer({}, {"binds": [bound("a", "n")]})),
        ["binds: a is not there, and should be n"],
    ),
    table.Case(
        "as many of a group as there should be",
        (
            {"boundOf": {"g": 2, "pg-bare-7": 1, "h": 0}},
            answer({"binds": [bound(pod, "n") for pod in ("a", "b", "bare")]}),
        ),
        [],
    ),
    table.Case(
        "too few of a group",
        ({"boundOf": {"g": 2}}, answer({"binds": [bound("a", "n"), bound("bare", "n")]})),
        ["boundOf: g is 1, and should be 2"],
    ),
    table.Case(
        "GPUs with ids of the case and new ones, which have any id",
        (
            {"gpuGroups": {"a": ["gpu-1", "new"], "b": ["new"], "bare": ["other"]}},
            answer(
                {
                    "binds": [
                        bound("a", "n", gpus=["x-1", "gpu-1"]),
                        bound("b", "n", gpus=["x-1"]),
                        bound("bare", "m", gpus=["x-1"]),
                    ]
                }
            ),
        ),
        [],
    ),
    table.Case(
        "another GPU, and pods that do not share one",
        (
            {"gpuGroups": {"a": ["gpu-1"], "b": ["new"], "bare": ["new"]}},
            answer(
                {
                    "binds": [
                        bound("a", "n", gpus=["x-1"]),
                        bound("b", "n", gpus=["x-2"]),
                        bound("bare", "n"),
                    ]
                }
            ),
        ),
        [
            "gpuGroups: a is [\"a new one of ['a']\"], and should be ['gpu-1']",
            (
                "gpuGroups: b is [\"a new one of ['b']\"],"
                " and should be [\"a new one of ['b', 'bare']\"]"
            ),
            "gpuGroups: bare is not there, and should be [\"a new one of ['b', 'bare']\"]",
        ],
    ),
    table.Case(
        "another nomination",
        ({"nominations": {"a": "n"}}, answer({"nominations": [bound("a", "m")]})),
        ["nominations: a is m, and should be n"],
    ),
    table.Case(
        "slots add up for each node",
        (
            {"reservations": {"g/launcher": {"n": 3, "m": 1}}},
            answer(
                {"reservations": [reservation("n", 1), reservation("m", 1), reservation("n", 2)]}
            ),
        ),
        [],
    ),
    table.Case(
        "a slot that should not be",
        ({"reservations": {}}, answer({"reservations": [reservation("n", 1)]})),
        ["reservations: g/launcher is {'n': 1}, and should not be there"],
    ),
    table.Case(
        "the verdict, or any",
        ({"unschedulable": {"g": None}}, answer(refused("NoCapacity"))),
        [],
    ),
    table.Case(
        "another verdict",
        ({"unschedulable": {"g": "Fragmented"}}, answer(refused("NoCapacity"))),
        ["unschedulable: g is NoCapacity, and should be Fragmented"],
    ),
    table.Case(
        "a message with its numbers",
        ({"says": {"g": ["2", "team-a"]}}, answer(refused("ExceedsLimit", "2 of team-a."))),
        [],
    ),
    table.Case(
        "a number is not a part of another one",
        ({"says": {"g": ["2"]}}, answer(refused("ExceedsLimit", "12, 2.5 and 1.2"))),
        ["says: g does not say '2': '12, 2.5 and 1.2'"],
    ),
    table.Case(
        "a PodGroup without a reason has no message",
        ({"says": {"g": ["2"]}}, answer({})),
        ["says: g does not say '2': ''"],
    ),
    table.Case(
        "a fair share, of one resource",
        ({"fairShare": {"team": {"gpu": 3}}}, answer({}, **shares(3.0))),
        [],
    ),
    table.Case(
        "another fair share, and of another queue",
        ({"fairShare": {"team": {"gpu": 3}, "x": {"cpu": 1}}}, answer({}, **shares(2))),
        [
            "fairShare: team has 2 of gpu, and should have 3",
            "fairShare: x has None of cpu, and should have 1",
        ],
    ),
    table.Case("later cycles are quiet", ({"laterCycles": "quiet"}, answer({}, {}, {})), []),
    table.Case(
        "a later cycle is not",
        ({"laterCycles": "quiet"}, answer({}, {"nominations": [bound("a", "n")]})),
        [
            f"laterCycles: nominations in cycle 2: {[bound('a', 'n')]}",
        ],
    ),
    table.Case(
        "no later cycle at all",
        ({"laterCycles": "quiet"}, answer({"binds": [bound("a", "n")]})),
        ["laterCycles: there are none"],
    ),
    table.Case(
        "what each cycle should do, and then nothing",
        (
            {"binds": {}, "then": [{"binds": {"a": "n"}}], "laterCycles": "quiet"},
            answer({}, {"binds": [bound("a", "n")]}, {}),
        ),
        [],
    ),
    table.Case(
        "another cycle than the first is wrong",
        (
            {"then": [{}, {"binds": {"a": "n"}}]},
            answer({}, {}, {"evictions": [evicted("a")]}),
        ),
        [
            "cycle 3: binds: a is not there, and should be n",
            "cycle 3: evictions: a is reclaim, and should not be there",
        ],
    ),
    table.Case(
        "fewer cycles than it is told of",
        ({"then": [{}], "laterCycles": "quiet"}, answer({})),
        ["then: there are 0 cycles, and should be 1", "laterCycles: there are none"],
    ),
    table.Case(
        "what comes after those is not quiet",
        ({"then": [{}], "laterCycles": "quiet"}, answer({}, {}, {"binds": [bound("a", "n")]})),
        [f"laterCycles: binds in cycle 3: {[bound('a', 'n')]}"],
    ),
]

RULE = """
### 7 A pod is *bound*
Or it is not.
### 8 Nothing else

| reason | when |
|---|---|
| TooBig, TooSmall | it does not fit |
"""

# the rule that a case names -> what is wrong with that
NAMES: list[table.Case[str, str | None]] = [
    table.Case("a number", "7", None),
    table.Case("a verdict that shares its row", "TooSmall", None),
    table.Case("no such number", "9", "there is no rule '9'"),
    table.Case("the head of the table", "verdict", "there is no rule 'verdict'"),
]


def waiting_in(case: SchedulerCase) -> set[str]:
    """Return the pods of a case that are nowhere yet."""
    waiting = [
        it["metadata"]
        for it in case.objects
        if it["kind"] == "Pod" and it["status"]["phase"] == "Pending"
    ]
    return {f"{meta['namespace']}/{meta['name']}".removeprefix("default/") for meta in waiting}


@pytest.mark.parametrize("case", ANSWERS, ids=table.ids)
def test_every_difference_is_reported(
    case: table.Case[tuple[dict[str, Any], dict[str, Any]], list[str]],
) -> None:
    """What is not expected is not looked at; what is expected is compared as a whole."""
    expect, document = case.given

    assert faults(SchedulerCase("x", "7", {}, expect, of_pods("a", "b")), document) == case.want


@pytest.mark.parametrize("case", NAMES, ids=table.ids)
def test_a_rule_is_named_by_its_number_or_reason(case: table.Case[str, str | None]) -> None:
    """Other names are refused."""
    assert rule_fault(case.given, RULE) == case.want


def test_an_expectation_of_what_is_not_there_is_found() -> None:
    """A name that is mistyped would be expected for ever, or never."""
    expect = {"binds": {"a": "n"}, "reservations": {"h/l": {"m": 1}}, "fairShare": {"team": {}}}
    expect["then"] = [{"evictions": {"b": "reclaim"}}]
    objects = [*of_pods("a"), {"kind": "Node", "metadata": {"name": "n"}}]

    assert unknown_names(SchedulerCase("x", "7", {}, expect, objects)) == ["b", "h", "m", "team"]


@pytest.mark.parametrize(
    ("head", "fault"),
    [
        ("kind: Pod", "the first document is a Pod, not a Case"),
        ("kind: Case\nrule: 7\nwhy: y\nexpect: {bind: {}}", "what is expect.bind"),
        ("kind: Case\nrule: 7\nwhy: y\nexpect: {}\noption: {}", "what is option"),
        ("kind: Case\nrule: 7\nwhy: y\nexpect: {then: [{bind: {}}]}", "what is expect.then.bind"),
    ],
)
def test_a_case_that_is_none(tmp_path: Path, head: str, fault: str) -> None:
    """A key that is not read would expect nothing."""
    (tmp_path / "x.yaml").write_text(f"{head}\n---\nkind: Node\n")

    with pytest.raises(ValueError, match=fault):
        read_case(tmp_path / "x.yaml")


def test_every_case_means_something() -> None:
    """It shows a rule, says how its answer was found, and expects of what there is."""
    assert len(all_cases()) >= 500
    check_all(impossible_case)


def impossible_case(case: SchedulerCase) -> Iterator[str]:
    """Yield what keeps a case from meaning something."""
    if fault := rule_fault(case.rule, RULES):
        yield fault
    for what, there in (("why", case.why.strip()), ("objects", case.objects)):
        if not there:
            yield f"it has no {what}"
    yield from (f"it expects of {name}, which is not there" for name in unknown_names(case))
    if faults(case, answer({}, {})) == []:
        yield "a scheduler that does nothing is right"
    yield from unplaced(case)


def unplaced(case: SchedulerCase) -> Iterator[str]:
    """Pods are placed that wait; if some are not, some group says why, and else none does."""
    placed = {*case.expect.get("binds", {}), *case.expect.get("nominations", {})}
    waiting = waiting_in(case)
    if placed - waiting:
        yield f"it places what does not wait: {placed - waiting}"
    refused = case.expect.get("unschedulable")
    if refused is not None and "binds" in case.expect and bool(waiting - placed) != bool(refused):
        yield f"of {waiting - placed}, which wait, {refused} is said"
