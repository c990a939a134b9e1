"""A wrong decision is reported as a fault, and every case can fail."""

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


def bound(pod: str, node: str, gpus: Sequence[str] = ()) -> dict[str, Any]:
    """Write where a pod is bound, or nominated."""
    return {"namespace": "default", "pod": pod, "node": node, "gpuGroups": [*gpus]}


def binds(**node_of: str) -> dict[str, Any]:
    """Write a cycle that binds pods to nodes."""
    return {"binds": [bound(pod, node) for pod, node in node_of.items()]}


def refused(message: str = "") -> dict[str, Any]:
    """Write a cycle in which a PodGroup is not placed."""
    one = {"namespace": "default", "podGroup": "g", "reason": "NoCapacity", "message": message}
    return {"unschedulable": [one]}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """Write a pod."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}}


PODS = [
    pod("a", annotations={"pod-group-name": "g"}),
    pod("bare"),
    pod("running", labels={"runai-gpu-group": "gpu-1"}),
]
TWO_GPUS = {"binds": [bound("a", "n", ["x-1"]), bound("bare", "n", ["x-2"])]}
RESERVED = {"namespace": "default", "podGroup": "g", "subGroup": "launcher", "node": "n"}
EVICTED = {"namespace": "default", "pod": "a", "reason": "", "action": "reclaim"}

# (what is expected, what a simulation returned) -> the differences
ANSWERS: list[table.Case[tuple[dict[str, Any], dict[str, Any]], list[str]]] = [
    table.Case(
        "another schema is not compared",
        ({}, {"schema": "v2"}),
        ["schema: 'v2', not 'trainer-kai/simulate/v1'"],
    ),
    table.Case(
        "a pod that is bound too much, elsewhere or not at all is a fault",
        ({"binds": {"a": "n", "b": None}}, answer(binds(a="m", c="n"))),
        [
            "binds: a is m, and should be n",
            "binds: b is not there, and should be anything",
            "binds: c is n, and should not be there",
        ],
    ),
    table.Case(
        "a bind in a later cycle does not count for the first",
        ({"binds": {"a": "n"}}, answer({}, binds(a="n"))),
        ["binds: a is not there, and should be n"],
    ),
    table.Case(
        "too few bound pods of a PodGroup are a fault",
        ({"boundOf": {"g": 2, "pg-bare-default.bare": 1}}, answer(binds(a="n", bare="n"))),
        ["boundOf: g is 1, and should be 2"],
    ),
    table.Case(
        "a new GPU is none that the case names",
        ({"gpuGroups": {"a": ["gpu-1"], "bare": ["new"]}}, answer(TWO_GPUS)),
        ["gpuGroups: a is [\"a new one of ['a']\"], and should be ['gpu-1']"],
    ),
    table.Case(
        "pods with one id share a GPU",
        ({"gpuGroups": {"a": ["new"], "bare": ["new"]}}, answer(TWO_GPUS)),
        [
            f"gpuGroups: {name} is [\"a new one of ['{name}']\"],"
            " and should be [\"a new one of ['a', 'bare']\"]"
            for name in ("a", "bare")
        ],
    ),
    table.Case(
        "a nomination to another node is a fault",
        ({"nominations": {"a": "n"}}, answer({"nominations": [bound("a", "m")]})),
        ["nominations: a is m, and should be n"],
    ),
    table.Case(
        "reserved places of a node add up",
        (
            {"reservations": {}},
            answer({"reservations": [{**RESERVED, "count": 1}, {**RESERVED, "count": 2}]}),
        ),
        ["reservations: g/launcher is {'n': 3}, and should not be there"],
    ),
    table.Case(
        "another reason is a fault",
        ({"unschedulable": {"g": "Fragmented"}}, answer(refused())),
        ["unschedulable: g is NoCapacity, and should be Fragmented"],
    ),
    table.Case(
        "a number is not a part of another one",
        ({"says": {"g": ["2"]}}, answer(refused("12, 2.5 and 1.2"))),
        ["says: g does not say '2': '12, 2.5 and 1.2'"],
    ),
    table.Case(
        "another fair share, or a queue without one, is a fault",
        (
            {"fairShare": {"team": {"gpu": 3}, "x": {"cpu": 1}}},
            answer({}, queues=[{"name": "team", "fairShare": {"gpu": 2.0}}]),
        ),
        [
            "fairShare: team has 2.0 of gpu, and should have 3",
            "fairShare: x has None of cpu, and should have 1",
        ],
    ),
    table.Case(
        "each cycle is compared with its own expectation",
        ({"then": [{}, {"binds": {"a": "n"}}]}, answer({}, {}, {"evictions": [EVICTED]})),
        [
            "cycle 3: binds: a is not there, and should be n",
            "cycle 3: evictions: a is reclaim, and should not be there",
        ],
    ),
    table.Case(
        "too few cycles are a fault",
        ({"then": [{}], "laterCycles": "quiet"}, answer({})),
        ["then: there are 0 cycles, and should be 1", "laterCycles: there are none"],
    ),
    table.Case(
        "a bind after the last expectation is not quiet",
        ({"then": [{}], "laterCycles": "quiet"}, answer({}, {}, binds(a="n"))),
        [f"laterCycles: binds in cycle 3: {[bound('a', 'n')]}"],
    ),
]


@pytest.mark.parametrize("case", ANSWERS, ids=table.ids)
def test_every_difference_is_reported(
    case: table.Case[tuple[dict[str, Any], dict[str, Any]], list[str]],
) -> None:
    """What is not expected is not looked at; what is expected is compared as a whole."""
    expect, document = case.given

    assert faults(SchedulerCase("x", "7", {}, expect, PODS), document) == case.want


def test_an_expectation_of_an_unknown_name_is_found() -> None:
    """A name that is mistyped would be expected for ever, or never."""
    expect = {"binds": {"a": "n"}, "reservations": {"h/l": {"m": 1}}, "fairShare": {"team": {}}}
    expect["then"] = [{"evictions": {"b": "reclaim"}}]
    objects = [*PODS, {"kind": "Node", "metadata": {"name": "n"}}]

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
def test_a_key_that_is_not_read_is_refused(tmp_path: Path, head: str, fault: str) -> None:
    """It would expect nothing."""
    (tmp_path / "x.yaml").write_text(f"{head}\n---\nkind: Node\n")

    with pytest.raises(ValueError, match=fault):
        read_case(tmp_path / "x.yaml")


def test_every_case_can_fail() -> None:
    """It shows a rule, says how its answer was found, and expects of what there is."""
    names = [case.name for case in all_cases()]

    assert len(set(names)) == len(names) >= 500
    assert rule_fault("99", RULES) == "there is no rule '99'"
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


def waiting_in(case: SchedulerCase) -> set[str]:
    """Return the pods of a case that are nowhere yet."""
    waiting = [
        it["metadata"]
        for it in case.objects
        if it["kind"] == "Pod"
        and "nodeName" not in it.get("spec", {})
        and it.get("status", {}).get("phase", "Pending") == "Pending"
    ]
    names = {f"{meta.get('namespace', 'default')}/{meta['name']}" for meta in waiting}
    return {name.removeprefix("default/") for name in names}
