"""H4: a label chooses no priority that the API server would not let the namespace's pods have.

A PriorityClass of the system, or one that a ResourceQuota of the namespace counts, is for the pods'
own `spec.priorityClassName`, which the API server admits.
"""

from typing import Any, Final, TypeAlias

import pytest

from tests.hostile.conftest import Measured, SimulateFixture
from tests.hostile.forged_jobsets import jobset, waiting
from tests.hostile.objects import GPU, TENANT, VICTIMS, cluster, pod, pod_group
from tests.support.case import Case, ids

Obj: TypeAlias = dict[str, Any]

_RED: Final = VICTIMS[0]
_SYSTEM: Final = "system-node-critical"
_OURS: Final = "trainer-kai"
_CLASSES: Final = {
    _SYSTEM: 2_000_001_000,
    _OURS: 1_000_000_000,
    "highest": 999_999_999,
    "inference": 125,
    "build": 100,
    "train": 50,
}


def _classes(**more: int) -> list[Obj]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in {**_CLASSES, **more}.items()
    ]


def _quota(operator: str, *values: str, namespace: str = TENANT) -> Obj:
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "priorities", "namespace": namespace},
        "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [expression]}},
    }


def _running() -> list[Obj]:
    """Return the jobs of red: they have all GPUs, and the tenant is in the same queue."""
    return [
        it
        for n in range(2)
        for it in (
            pod_group(_RED, f"job{n}", 8),
            *(pod(_RED, f"p{n}-{i}", 1, f"job{n}", node=f"n{n}") for i in range(8)),
        )
    ]


def _group(name: str, members: int = 8) -> Obj:
    """Return the tenant's PodGroup in the queue of red; what the label says is in its spec."""
    it = pod_group(TENANT, "job", members, queue=_RED)
    it["spec"]["priorityClassName"] = name
    return it


def _pods(name: str = "", number: int = 8, node: str = "") -> list[Obj]:
    """Return the pods of that PodGroup, with a class of their own."""
    pods = [pod(TENANT, f"t{n}", 1, "job", node=node) for n in range(number)]
    for it in pods:
        if name:
            it["spec"]["priorityClassName"] = name
    return pods


def _alone(name: str, own: str = "") -> Obj:
    """Return a pod without a PodGroup, in the queue of red."""
    it = pod(TENANT, "t0", 1)
    it["metadata"]["labels"] |= {"kai.scheduler/queue": _RED, "priorityClassName": name}
    if own:
        it["spec"]["priorityClassName"] = own
    return it


def _message(found: Measured, group: str = "job") -> str:
    it = found.waiting[f"{TENANT}/{group}"]
    assert it["reason"] == "Misconfigured"
    return it["message"]


def _refused(name: str, right: str, why: str) -> str:
    return (
        f"choose {right}, or set spec.priorityClassName of all pods to {name}, which the API server"
        f" checks. A label or PodGroup may not choose PriorityClass {name}: {why}"
    )


_OF_SYSTEM: Final = _refused(
    _SYSTEM,
    "build, highest, inference or train",
    "its value 2000001000 is not below 1000000000",
)


def _counted(name: str, right: str) -> str:
    return _refused(name, right, "ResourceQuota priorities limits the pods of this class")


# the class that is chosen, what else there is → what is told
REFUSED = [
    Case("a class of the system is refused", (_SYSTEM, ()), _OF_SYSTEM),
    Case(
        "our own class is refused",
        (_OURS, ()),
        _OF_SYSTEM.replace(_SYSTEM, _OURS).replace("2000001000", "1000000000"),
    ),
    Case(
        "one that a ResourceQuota counts",
        ("inference", (_quota("In", "inference", "highest"),)),
        _counted("inference", "build or train"),
    ),
    Case(
        "all but one",
        ("inference", (_quota("NotIn", "build"),)),
        _counted("inference", "build or train"),
    ),
    Case(
        "a class that any quota counts is refused",
        ("inference", (_quota("Exists"),)),
        _counted("inference", "train"),
    ),
    Case(
        "any, as a scope",
        (
            "inference",
            (
                {
                    **_quota("Exists"),
                    "spec": {"hard": {"pods": "0"}, "scopes": ["PriorityClass"]},
                },
            ),
        ),
        _counted("inference", "train"),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_a_label_that_chooses_too_much_evicts_no_pod(
    case: Case[tuple[str, tuple[Obj, ...]], str], simulate: SimulateFixture
) -> None:
    """The PodGroup is told what it may choose; a pod without a PodGroup likewise."""
    name, more = case.given
    objects = [*cluster(), *_classes(), *_running(), *more]

    found = simulate([*objects, _group(name), *_pods()])
    alone = simulate([*objects, _alone(name)])

    assert (found.evictions, found.binds) == ({}, {})
    assert _message(found) == f"spec.priorityClassName: {case.want}"
    assert (alone.evictions, alone.binds) == ({}, {})
    path = "metadata.labels[priorityClassName]"
    assert _message(alone, f"pg-t0-{TENANT}-t0") == f"{path}: {case.want}"


# the class that is chosen, what else there is
ADMITTED: list[Case[tuple[str, tuple[Obj, ...]], None]] = [
    Case("below the system's", ("highest", ()), None),
    Case("a quota of another class", ("inference", (_quota("In", "build"),)), None),
    Case("a quota of all others", ("inference", (_quota("NotIn", "inference"),)), None),
    Case("a quota of pods without one", ("inference", (_quota("DoesNotExist"),)), None),
    Case("a quota elsewhere", ("inference", (_quota("Exists", namespace="red"),)), None),
    Case(
        "a quota of all pods",
        ("inference", ({**_quota("Exists"), "spec": {"hard": {"pods": "9"}}},)),
        None,
    ),
]


@pytest.mark.parametrize("case", ADMITTED, ids=ids)
def test_a_label_chooses_other_classes(
    case: Case[tuple[str, tuple[Obj, ...]], None], simulate: SimulateFixture
) -> None:
    """A larger priority of the same queue goes first, as its owner has set it up."""
    name, more = case.given
    found = simulate([*cluster(), *_classes(), *_running(), *more, _group(name), *_pods()])

    assert {*found.evictions.values()} == {"preempt"}
    assert "Misconfigured" not in {it["reason"] for it in found.waiting.values()}


# the class that all pods have, what else there is
CARRIED: list[Case[tuple[str, tuple[Obj, ...]], None]] = [
    Case("pods may have the system's class", (_SYSTEM, ()), None),
    Case("one that a ResourceQuota counts", ("inference", (_quota("Exists"),)), None),
]


@pytest.mark.parametrize("case", CARRIED, ids=ids)
def test_what_all_pods_have_the_api_server_admitted(
    case: Case[tuple[str, tuple[Obj, ...]], None], simulate: SimulateFixture
) -> None:
    """It counts, whatever it is; also for a pod without a PodGroup."""
    name, more = case.given
    objects = [*cluster(), *_classes(), *_running(), *more]

    found = simulate([*objects, _group(name), *_pods(name)])
    alone = simulate([*objects, _alone(name, own=name)])

    assert {*found.evictions.values()} == {*alone.evictions.values()} == {"preempt"}


# which of eight pods have the class
SOME = [
    Case("the first pod alone may have it", range(1), None),
    Case("all but the launcher", range(1, 8), None),
]


@pytest.mark.parametrize("case", SOME, ids=ids)
def test_a_class_that_some_pods_have_gains_nothing(
    case: Case[range, None], simulate: SimulateFixture
) -> None:
    """The API server admitted it for these: the PodGroup waits with the default priority."""
    pods = [_pods("inference")[n] if n in case.given else _pods()[n] for n in range(8)]
    theirs = [_quota("In", "inference"), _group("inference"), *pods]

    found = simulate([*cluster(), *_classes(), *_running(), *theirs])
    alone = simulate([*cluster(), *_classes(), *theirs])

    assert found.evictions == {}
    assert found.waiting[f"{TENANT}/job"]["reason"] != "Misconfigured"
    assert len(alone.binds) == 8


def _in_two_stages(first: str, later: str) -> Obj:
    """Return a JobSet in the queue of red: 7 pods come after the first, each with its class."""
    jobs = waiting(1, 7)
    for job, name in zip(jobs, (first, later), strict=True):
        spec = job["template"]["spec"]["template"]["spec"]
        spec["containers"][0]["resources"] = {"limits": {GPU: "1"}}
        if name:
            spec["priorityClassName"] = name
    return jobset("staged", jobs, labels={"kai.scheduler/queue": _RED})


# the class of the first pod, and of those that come after it
STAGES = [
    Case("pods of all stages may have it", ("mid", "mid"), None),
    Case("pods of the first stage may have it", ("mid", ""), None),
    Case("those that come", ("", "mid"), None),
]


@pytest.mark.parametrize("case", STAGES, ids=ids)
def test_pods_to_come_are_not_admitted_yet(
    case: Case[tuple[str, str], None], simulate: SimulateFixture
) -> None:
    """A quota of one pod admits the first; the default priority starts it where there is room."""
    counted = _quota("In", "mid")
    counted["spec"]["hard"] = {"pods": "1"}
    theirs = [*_classes(mid=75), counted, _in_two_stages(*case.given)]

    found = simulate([*cluster(), *_running(), *theirs])
    alone = simulate([*cluster(), *theirs])

    assert (found.evictions, found.binds) == ({}, {})
    assert {it["reason"] for it in found.waiting.values()} == {"NoCapacity"}
    assert len(alone.binds) == 1


def test_a_default_is_no_choice(simulate: SimulateFixture) -> None:
    """The podgrouper names `train` where nothing else is asked for: no quota is in its way."""
    objects = [*cluster(), *_classes(), _quota("Exists"), _group("train"), *_pods()]

    assert len(simulate(objects).binds) == 8


def test_what_runs_stays_and_gains_nothing(simulate: SimulateFixture) -> None:
    """A label that comes later neither ends a PodGroup nor keeps it from being preempted."""
    running = [_group(_SYSTEM), *_pods(node="n0")]
    alone = simulate([*cluster(), *_classes(), *running])
    urgent = [pod_group(_RED, "urgent", 8), *(pod(_RED, f"u{n}", 1, "urgent") for n in range(8))]
    urgent[0]["spec"]["priorityClassName"] = "build"
    others = _running()[9:]

    found = simulate([*cluster(), *_classes(), *running, *others, *urgent])

    assert (alone.evictions, alone.waiting) == ({}, {})
    assert len(found.evictions) == 8


def test_many_classes_are_listed_in_part(simulate: SimulateFixture) -> None:
    """A message has an end."""
    more = {f"class-{n:03}": 60 for n in range(200)}
    found = simulate([*cluster(), *_classes(**more), *_running(), _group(_SYSTEM), *_pods()])

    names = ", ".join(["build", *(f"class-{n:03}" for n in range(9))])
    assert f"choose {names}, …, or set spec.priorityClassName" in _message(found)
