"""In which eviction units PodGroups could lose what they have."""

from typing import Any

import pytest

from scheduler.core.eviction.victims import DisruptionAllowance, VictimPool
from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace, SubGroupSet
from scheduler.core.model.snapshot import NO_BUDGETS
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature

ONE = signature(gpu=1)


def eviction_units_of(builder: Builder, protected: frozenset[int] = frozenset()) -> list[str]:
    """Return the eviction units: PodGroup, whole or not, its pods as letters, and its GPUs."""
    found = VictimPool(
        builder.snapshot(), protected, lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS)
    )
    report = []
    for one, members, podgroups, is_whole in zip(
        found.eviction_units, found.victims, found.podgroups, found.is_whole, strict=True
    ):
        pods = "".join(chr(97 + it.pod) if it.pod >= 0 else "+" for it in members)
        podgroup_names = ",".join(map(str, podgroups))
        report.append(
            f"{podgroup_names} {'all' if is_whole else 'some'} {pods} {one.amounts[2] // 1000}"
        )
    return report


def one(count: int = 1, **more: Any) -> Builder:
    builder = Builder([SnapshotNode()])
    builder.running_podgroup([0] * count, ONE, **more)
    return builder


def two(**more: Any) -> Builder:
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b")])
    builder.running_podgroup([0], ONE, queue="a", workload="x")
    builder.running_podgroup([0], ONE, workload="x", **{"queue": "a", **more})
    return builder


def one_of_two() -> Builder:
    """Return two PodGroups of one JobSet, of which one waits."""
    builder = Builder([SnapshotNode()])
    builder.running_podgroup([0], ONE, workload="x")
    builder.uniform_podgroup(1, ONE, workload="x")
    return builder


def nested(minimum: int, there: int = 1) -> Builder:
    """Return a group of two PodSets, of which so many are needed, and of each so many pods."""
    builder = Builder([SnapshotNode()])
    row = builder.signature_row(ONE)
    for _ in range(2 * there):
        builder.pod_on_node(0, row)
    pods = {"m": tuple(range(there)), "n": tuple(range(there, 2 * there))}
    podsets = tuple(PodSet(name, 1, running=there, running_pods=of) for name, of in pods.items())
    builder.podgroup(SubGroupSet("all", minimum, podsets), is_kept=True)
    return builder


def with_reserved_place() -> Builder:
    """Return a PodGroup that has a pod and a reserved place."""
    builder = Builder([SnapshotNode()])
    row = builder.signature_row(ONE)
    builder.pod_on_node(0, row)
    reserved_place = ReservedPlace(0, row, ReservationCause.ANTICIPATED)
    builder.podgroup(
        PodSet(
            "x", 2, running=1, reserved_places=(reserved_place,), expected=1, expected_signature=row
        ),
        is_kept=True,
    )
    return builder


def beside_reserved_places() -> Builder:
    """Return a group that needs one child: a pod, or two reserved places."""
    builder = Builder([SnapshotNode()])
    row = builder.signature_row(ONE)
    builder.pod_on_node(0, row)
    reserved_places = (ReservedPlace(0, row, ReservationCause.ANTICIPATED),) * 2
    later = PodSet("z", 2, reserved_places=reserved_places, expected=2, expected_signature=row)
    podsets = (PodSet("m", 1, running=1, running_pods=(0,)), later)
    builder.podgroup(SubGroupSet("all", 1, podsets), is_kept=True)
    return builder


def lacking() -> Builder:
    """Return a group of which a child waits that is needed, and another has a pod on top."""
    builder = Builder([SnapshotNode()])
    row = builder.signature_row(ONE)
    builder.pod_on_node(0, row)
    builder.pod_on_node(0, row)
    waiting = builder.waiting_pods(1, ONE)
    podsets = (PodSet("m", 1, running=2, running_pods=(0, 1)), PodSet("n", 1, pending=waiting))
    builder.podgroup(SubGroupSet("all", 2, podsets), is_kept=True)
    return builder


EVICTION_UNITS: list[Case[Builder, list[str]]] = [
    Case("a gang has one", one(3), ["0 all abc 3"]),
    Case(
        "what comes on top is lost pod by pod, in line the last one first",
        one(3, minimum=1),
        ["0 all abc 1", "0 some b 1", "0 some c 1"],
    ),
    Case("of a workload nothing is on top", one(3, minimum=1, workload="x"), ["0 all abc 3"]),
    Case("PodGroups of a JobSet have one", two(), ["0,1 all ab 2"]),
    Case("unless one of them stays", two(non_evictable_reason="for a reason"), []),
    Case("or cannot be preempted", two(is_preemptible=False), []),
    Case("or is of another queue", two(queue="b"), []),
    Case("a non-preemptible one has none", one(is_preemptible=False), []),
    Case("one that cannot be evicted has none", one(non_evictable_reason="for a reason"), []),
    Case("a reserved place is lost with all", with_reserved_place(), ["0 all a+ 2"]),
    Case("no PodGroup keeps reserved places alone", beside_reserved_places(), ["0 all a++ 3"]),
    Case("all children are needed", nested(2), ["0 all ab 2"]),
    Case("a child that is not needed goes whole", nested(1), ["0 all ab 1", "0 some b 1"]),
    Case(
        "where none is needed all go one by one",
        nested(0),
        ["0 all ab 0", "0 some a 1", "0 some b 1"],
    ),
    Case(
        "a child goes with what it could spare before",
        nested(1, there=2),
        ["0 all abcd 1", "0 some cd 1", "0 some b 1", "0 some d 1"],
    ),
]


@pytest.mark.parametrize("case", EVICTION_UNITS, ids=ids)
def test_eviction_units(case: Case[Builder, list[str]]) -> None:
    """Rules 35 and 36."""
    assert eviction_units_of(case.given) == case.want


FIRST_REQUESTS: list[Case[Builder, list[list[int]]]] = [
    Case("a gang for all", one(3), [[3]]),
    Case("for what it needs, and then for one at a time", one(3, minimum=1), [[1], [1], [1]]),
    Case("PodGroups of a JobSet each for itself", two(), [[1, 1]]),
    Case("one without pods for nothing", one_of_two(), [[1]]),
    Case("of a workload for what it needs", one(3, minimum=1, workload="x"), [[1]]),
    Case("for what it holds", with_reserved_place(), [[2]]),
    Case("for one child of two", beside_reserved_places(), [[1]]),
    Case("one below its minimum for all it has", lacking(), [[1], [1]]),
    Case("a child for what it could not spare", nested(1, there=2), [[1], [1], [1], [1]]),
]


@pytest.mark.parametrize("case", FIRST_REQUESTS, ids=ids)
def test_what_would_be_asked_for_first(case: Case[Builder, list[list[int]]]) -> None:
    """Of each eviction unit, if it were to be had back: rule 32."""
    snapshot = case.given.snapshot()
    found = VictimPool(snapshot, (), lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS))
    assert [
        [gpu // 1000 for *_, gpu in it.first_requests] for it in found.eviction_units
    ] == case.want


def test_a_protected_podgroup_has_none() -> None:
    """And no other PodGroup of its JobSet."""
    assert eviction_units_of(two(), frozenset({1})) == []


def test_what_is_lost_is_gone() -> None:
    """A step leaves the others, with less in the whole; the whole leaves nothing."""
    found = VictimPool(
        one(3, minimum=1).snapshot(), (), lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS)
    )
    assert found.remove_unit(2) == [2]
    assert [it.pod for it in found.victims[0]] == [0, 1]
    assert found.remove_unit(0) == [0, 1]
    assert found.remove_podgroup(0) == []


def test_a_child_is_evicted_with_its_surplus_pods() -> None:
    """In whatever order, and no more than that."""
    found, other = (
        VictimPool(
            nested(1, there=2).snapshot(),
            (),
            lambda row, at: (at, row),
            DisruptionAllowance(NO_BUDGETS),
        )
        for _ in range(2)
    )
    assert sorted(found.remove_unit(1)) == [1, 3]
    assert [it.pod for it in found.victims[0]] == [0, 1]
    assert found.remove_unit(2) == [2]

    assert other.remove_unit(3) == [3]
    assert [it.pod for it in other.victims[1]] == [2]
    assert other.amounts(1, other.victims[1])[2] == 1000
    assert other.remove_unit(1) == [1]
    assert [it.pod for it in other.victims[0]] == [0, 1]


def test_a_child_is_evicted_with_its_own_children() -> None:
    """And so on: here the pod of m on top, that of n, and then one of these."""
    builder = Builder([SnapshotNode()])
    row = builder.signature_row(ONE)
    for _ in range(5):
        builder.pod_on_node(0, row)
    inner = (
        PodSet("m", 1, running=2, running_pods=(1, 2)),
        PodSet("n", 1, running=2, running_pods=(3, 4)),
    )
    child = SubGroupSet("z", 1, inner)
    builder.podgroup(
        SubGroupSet("all", 1, (PodSet("a", 1, running=1, running_pods=(0,)), child)), is_kept=True
    )
    found = VictimPool(
        builder.snapshot(), (), lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS)
    )
    assert [it.pod for it in found.victims[1]] == [1, 2, 3, 4]
    assert sorted(found.remove_unit(1)) == [1, 2, 3, 4]


def test_a_podgroup_that_is_given_something_keeps_all() -> None:
    """All its eviction units are no more."""
    found = VictimPool(
        one(2, minimum=1).snapshot(), (), lambda row, at: (at, row), DisruptionAllowance(NO_BUDGETS)
    )
    assert found.remove_podgroup(0) == [0, 1]
    assert found.remove_podgroup(0) == []
