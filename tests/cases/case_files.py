"""Cases of the scheduler as files: objects, the rule they show, and the expected decisions."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.support.repository import ROOT
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions
from trainer_kai.cli.input.documents import Document, read_files
from trainer_kai.cli.input.kinds import with_identity

Obj: TypeAlias = Mapping[str, Any]

FOLDER: Final = ROOT / "tests" / "cases"
EXPECTED: Final = frozenset(
    {
        "binds",
        "boundOf",
        "gpuGroups",
        "evictions",
        "nominations",
        "reservations",
        "unschedulable",
        "says",
        "fairShare",
        "then",
        "laterCycles",
    }
)
_EXPECTED_LATER: Final = EXPECTED - {"fairShare", "then", "laterCycles"}
_SCHEMA: Final = "trainer-kai/simulate/v1"
_DECISIONS: Final = ("binds", "evictions", "nominations")
_RULE: Final = re.compile(r"^### (\d+[a-z]?) ", re.MULTILINE)
_REASONS: Final = re.compile(r"^\| ([A-Z]\w+(?:, [A-Z]\w+)*) \| .* \|$", re.MULTILINE)


@dataclass(frozen=True)
class SchedulerCase:
    """Objects, the rule they show, and what must come of them; *options* as flags in camelCase."""

    name: str
    rule: str
    options: Mapping[str, Any]
    expect: Mapping[str, Any]
    objects: Sequence[Obj]
    why: str = ""


@cache
def all_cases() -> tuple[SchedulerCase, ...]:
    """Read the cases of every file, once in a process; the objects are not to be changed.

    CASE=name reads only those whose names contain it, while one writes a case.
    """
    wanted = os.environ.get("CASE", "")
    paths = [it for it in sorted(FOLDER.rglob("*.yaml")) if wanted in it.stem]
    if not paths:
        raise ValueError(f"no case has a name with {wanted!r}")
    return tuple(map(read_case, paths))


def check_all(faults_of: Callable[[SchedulerCase], Iterable[str]]) -> None:
    """Fail with every fault that *faults_of* finds in some case, a line each."""
    lines: list[str] = []
    for case in all_cases():
        try:
            lines += (f"{case.name}: {fault}" for fault in faults_of(case))
        except Exception as error:
            error.add_note(f"in the case {case.name}")
            raise
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def read_case(path: Path) -> SchedulerCase:
    """Read a case: its first document says what it is about, the others are its objects."""
    head, *objects = (document.fields for document in read_files([str(path)]))
    if head.get("kind") != "Case":
        raise ValueError(f"{path.name}: the first document is a {head.get('kind')}, not a Case")
    unknown = head.keys() - {"apiVersion", "kind", "rule", "why", "options", "expect"}
    unknown |= {f"expect.{name}" for name in head["expect"].keys() - EXPECTED}
    for cycle in head["expect"].get("then", ()):
        unknown |= {f"expect.then.{name}" for name in cycle.keys() - _EXPECTED_LATER}
    if unknown:
        raise ValueError(f"{path.name}: what is {', '.join(sorted(unknown))}?")
    return SchedulerCase(
        name=path.stem,
        rule=str(head["rule"]),
        options=head.get("options") or {},
        expect=head["expect"],
        objects=objects,
        why=head["why"],
    )


def names_of(case: SchedulerCase) -> Mapping[str, frozenset[str]]:
    """Return how an expectation may call the pods, groups, nodes and queues of a case."""
    pods = _of_kind(case, "Pod")
    groups = {_key(it["metadata"], it["metadata"]["name"]) for it in _of_kind(case, "PodGroup")}
    return {
        "pods": frozenset(_key(it["metadata"], it["metadata"]["name"]) for it in pods),
        "groups": frozenset(groups | {_group_of(pod) for pod in pods}),
        "nodes": frozenset(it["metadata"]["name"] for it in _of_kind(case, "Node")),
        "queues": frozenset(it["metadata"]["name"] for it in _of_kind(case, "Queue")),
    }


def unknown_names(case: SchedulerCase) -> list[str]:
    """Return what a case expects of pods, groups, nodes or queues that it does not have."""
    known = names_of(case)
    found = {*case.expect.get("fairShare", {})} - known["queues"]
    for expect in (case.expect, *case.expect.get("then", ())):
        found |= _unknown_names(expect, known)
    return sorted(found)


def _unknown_names(expect: Obj, known: Mapping[str, frozenset[str]]) -> set[str]:
    placed = {**expect.get("binds", {}), **expect.get("nominations", {})}
    others = expect.get("gpuGroups", {}).keys() | expect.get("evictions", {}).keys()
    reserved_places = expect.get("reservations", {})
    groups = {reserved_place.rpartition("/")[0] for reserved_place in reserved_places}
    groups |= {
        name for what in ("boundOf", "unschedulable", "says") for name in expect.get(what, {})
    }
    nodes = {node for node in placed.values() if node} | {
        n for it in reserved_places.values() for n in it
    }
    named = {
        "pods": placed.keys() | others,
        "groups": groups,
        "nodes": nodes,
    }
    return {name for kind, names in named.items() for name in names - known[kind]}


def rule_fault(rule: str, markdown: str) -> str | None:
    """Say so if a rule is neither the number of one in the text nor a reason in its table."""
    reasons = ", ".join(_REASONS.findall(markdown)).split(", ")
    known = rule in _RULE.findall(markdown) or rule in reasons
    return None if known else f"there is no rule {rule!r}"


def faults(case: SchedulerCase, document: Obj) -> list[str]:
    """Say every difference between what a case expects and what a simulation returned."""
    if document.get("schema") != _SCHEMA:
        return [f"schema: {document.get('schema')!r}, not {_SCHEMA!r}"]
    expect, cycles = case.expect, document["cycles"]
    found = [*_cycle_faults(case, expect, cycles[0])]
    found += _share_faults(expect.get("fairShare", {}), document["queues"])
    later = expect.get("then", ())
    for number, (wanted, cycle) in enumerate(zip(later, cycles[1:], strict=False), 2):
        found += (f"cycle {number}: {fault}" for fault in _cycle_faults(case, wanted, cycle))
    if len(later) >= len(cycles):
        found.append(f"then: there are {len(cycles) - 1} cycles, and should be {len(later)}")
    if "laterCycles" in expect:
        found += _later_decisions(cycles, 1 + len(later))
    return found


def _cycle_faults(case: SchedulerCase, expect: Obj, cycle: Obj) -> Iterator[str]:
    """Say what of one cycle is not as expected; evictions are always compared."""
    if "binds" in expect:
        yield from _differences("binds", expect["binds"], _nodes(cycle["binds"]))
    if "gpuGroups" in expect:
        labelled = _labelled_gpus(case)
        want, got = (
            _gpus_by_pod(it, labelled)
            for it in (expect["gpuGroups"], _gpu_groups(cycle["binds"], labelled))
        )
        yield from _differences("gpuGroups", want, got)
    if "boundOf" in expect:
        bound = _bound_by_group(case, cycle["binds"])
        want = expect["boundOf"]
        yield from _differences("boundOf", want, {name: bound[name] for name in want})
    evicted = {_key(it, it["pod"]): it["action"] for it in cycle["evictions"]}
    yield from _differences("evictions", expect.get("evictions", {}), evicted)
    if "nominations" in expect:
        yield from _differences("nominations", expect["nominations"], _nodes(cycle["nominations"]))
    if "reservations" in expect:
        yield from _differences(
            "reservations", expect["reservations"], _reservations(cycle["reservations"])
        )
    refused = {_key(it, it["podGroup"]): it for it in cycle["unschedulable"]}
    if "unschedulable" in expect:
        reasons = {name: it["reason"] for name, it in refused.items()}
        yield from _differences("unschedulable", expect["unschedulable"], reasons)
    yield from _missing_in_messages(expect.get("says", {}), refused)


def _differences(what: str, want: Obj, got: Obj) -> Iterator[str]:
    """Compare key by key; where null is wanted, any value is right."""
    for name in sorted(want.keys() | got.keys()):
        if name not in want:
            yield f"{what}: {name} is {got[name]}, and should not be there"
        elif name not in got:
            yield f"{what}: {name} is not there, and should be {_as_text(want[name])}"
        elif want[name] is not None and want[name] != got[name]:
            yield f"{what}: {name} is {got[name]}, and should be {want[name]}"


def _as_text(value: object) -> str:
    return "anything" if value is None else str(value)


def _missing_in_messages(
    says: Mapping[str, Sequence[str]], refused: Mapping[str, Obj]
) -> Iterator[str]:
    """Look for parts of messages; a number must not be a part of a longer one."""
    for name, parts in says.items():
        message = str(refused.get(name, {}).get("message", ""))
        for part in parts:
            if not re.search(rf"(?<![\w.]){re.escape(part)}(?!\w|\.\d)", message):
                yield f"says: {name} does not say {part!r}: {message!r}"


def _share_faults(want: Mapping[str, Obj], queues: Sequence[Obj]) -> Iterator[str]:
    got = {queue["name"]: queue["fairShare"] for queue in queues}
    for name, shares in want.items():
        for resource, share in shares.items():
            there = got.get(name, {}).get(resource)
            if there is None or not math.isclose(share, there, rel_tol=1e-12):
                yield f"fairShare: {name} has {there} of {resource}, and should have {share}"


def _later_decisions(cycles: Sequence[Obj], checked: int) -> Iterator[str]:
    """Look at what comes after the cycles with an expectation of their own."""
    if len(cycles) <= checked:
        yield "laterCycles: there are none"
    for number, cycle in enumerate(cycles[checked:], checked + 1):
        for what in _DECISIONS:
            if cycle[what]:
                yield f"laterCycles: {what} in cycle {number}: {cycle[what]}"


def _nodes(entries: Sequence[Obj]) -> dict[str, str]:
    return {_key(it, it["pod"]): it["node"] for it in entries}


def _labelled_gpus(case: SchedulerCase) -> frozenset[str]:
    """Return the ids of the GPUs that pods of a case share from the beginning."""
    labels = [pod["metadata"].get("labels", {}) for pod in _of_kind(case, "Pod")]
    return frozenset(
        value for it in labels for name, value in it.items() if name.startswith("runai-gpu-group")
    )


def _gpu_groups(binds: Sequence[Obj], labelled: frozenset[str]) -> dict[str, list[str]]:
    """Return the GPUs that pods share; two nodes may have new ones with the same id."""
    return {
        _key(it, it["pod"]): [
            group if group in labelled else f"{it['node']}/{group}" for group in it["gpuGroups"]
        ]
        for it in binds
        if it["gpuGroups"]
    }


def _gpus_by_pod(groups: Mapping[str, Sequence[str]], labelled: frozenset[str]) -> Obj:
    """Name each new GPU by the pods that share it, because a case cannot know its id."""
    pods = {group: sorted(pod for pod in groups if group in groups[pod]) for group in _all(groups)}
    return {
        pod: sorted(it if it in labelled else f"a new one of {pods[it]}" for it in of_pod)
        for pod, of_pod in groups.items()
    }


def _all(groups: Mapping[str, Sequence[str]]) -> set[str]:
    return {group for of_pod in groups.values() for group in of_pod}


def _reservations(entries: Sequence[Obj]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for it in entries:
        podset = found.setdefault(f"{_key(it, it['podGroup'])}/{it['subGroup']}", {})
        podset[it["node"]] = podset.get(it["node"], 0) + it["count"]
    return found


def _bound_by_group(case: SchedulerCase, binds: Sequence[Obj]) -> Counter[str]:
    pods = _of_kind(case, "Pod")
    group_of = {_key(it["metadata"], it["metadata"]["name"]): _group_of(it) for it in pods}
    return Counter(group_of.get(_key(it, it["pod"]), "") for it in binds)


def _group_of(pod: Obj) -> str:
    """Return a pod's PodGroup; a pod that names none has one of its own, named after its uid."""
    meta = with_identity(Document("case", dict(pod))).fields["metadata"]
    annotations = meta.get("annotations") or {}
    return _key(meta, annotations.get("pod-group-name") or f"pg-{meta['name']}-{meta['uid']}")


def _key(at: Obj, name: str) -> str:
    namespace = at.get("namespace") or "default"
    return name if namespace == "default" else f"{namespace}/{name}"


def _of_kind(case: SchedulerCase, kind: str) -> list[Obj]:
    return [it for it in case.objects if it.get("kind") == kind]


def options_of(case: SchedulerCase) -> SimulationOptions:
    """Return the flags of a case as the simulation takes them."""
    given: dict[str, Any] = dict(case.options)
    if "actions" in given:
        given["actions"] = tuple(given["actions"].split(","))
    if "now" in given:
        given["now"] = int(datetime.fromisoformat(given["now"]).timestamp())
    return SimulationOptions(**given)
