"""What one attempt takes of a PodGroup, rule by rule."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.gang import (
    AssignedTasks,
    ElasticTasks,
    PodSetTasks,
    Tasks,
    can_be_satisfied,
    is_satisfied,
    min_available_state,
    tasks_to_allocate,
)
from scheduler.core.model.podgroup import (
    PodSet,
    ReservationCause,
    ReservedPlace,
    SubGroupSet,
    SubGroupTree,
    podsets_of,
)
from tests.support.case import Case, ids


def some(
    pods: str,
    minimum: int,
    *,
    name: str = "",
    reserved_places: int = 0,
    later: int = 0,
    **more: Any,
) -> PodSet:
    """Return a PodSet named after the first of its pods; each letter is a pod that waits."""
    return PodSet(
        name=name or pods[:1] or "-",
        minimum=minimum,
        pending=tuple(ord(pod) for pod in pods),
        reserved_places=(ReservedPlace(0, 0, ReservationCause.ANTICIPATED),) * reserved_places,
        expected=later,
        expected_signature=0,
        **more,
    )


def group(minimum: int, *children: SubGroupTree, name: str = "group") -> SubGroupSet:
    return SubGroupSet(name, minimum, children)


def described(taken: Tasks) -> str:
    """Return an attempt as the letters of its pods, and a + for each later one."""
    return " ".join("".join(map(chr, pods)) + "+" * later for _, pods, later in taken)


# a tree -> the attempts taken one after another
TASKS: list[Case[SubGroupTree, list[str]]] = [
    Case("a gang is taken whole, then pod by pod", some("abcd", 2), ["ab", "c", "d"]),
    Case("a minimum of 0 needs nothing, so pods come one by one", some("ab", 0), ["a", "b"]),
    Case("what is there counts", some("abc", 2, running=1), ["a", "b", "c"]),
    Case("what succeeded counts", some("abc", 3, succeeded=1), ["ab", "c"]),
    Case("too few pods are nothing", some("a", 2), []),
    Case("later pods fill up to the minimum", some("a", 3, later=4), ["a++"]),
    Case("real pods come before later ones", some("abc", 2, later=4), ["ab", "c"]),
    Case("later pods alone are never beyond the minimum", some("", 0, later=4), []),
    Case("too few with later ones are nothing", some("a", 3, later=1), []),
    Case(
        "reserved places without a pod count",
        some("", 2, reserved_places=2, later=2),
        [],
    ),
    Case(
        "of a reserved place and a later pod without, one is missing",
        some("", 2, reserved_places=1, later=2),
        ["+"],
    ),
    Case(
        "a pod for a reserved place is placed with the rest",
        some("ab", 2, reserved_places=2),
        ["ab"],
    ),
    Case(
        "reserved places claimed are not counted twice",
        some("a", 2, reserved_places=2, later=1),
        ["a"],
    ),
    Case("more pods than reserved places", some("abc", 3, reserved_places=1), ["abc"]),
    Case("a group without pods gives nothing", group(0, some("", 0)), []),
    Case("all children are taken together", group(2, some("ab", 2), some("c", 1)), ["ab c"]),
    Case("k of n: the first by name", group(1, some("cd", 2), some("ab", 2)), ["ab", "cd"]),
    Case(
        "k of n: one that cannot be is passed over", group(1, some("a", 2), some("bc", 2)), ["bc"]
    ),
    Case("k of n: too few that can be is nothing", group(2, some("a", 2), some("bc", 2)), []),
    Case(
        "k of n: one that is satisfied counts",
        group(2, some("ab", 2), some("cd", 2), some("", 1, running=1)),
        ["ab", "cd"],
    ),
    Case(
        "a satisfied group takes a child whole",
        group(0, some("ab", 2), some("cd", 2)),
        ["ab", "cd"],
    ),
    Case(
        "an unsatisfied one comes before one that has more",
        group(1, some("a", 1, running=1), some("bc", 2)),
        ["bc", "a"],
    ),
    Case(
        "required before optional",
        group(2, some("a", 0, running=1), some("bc", 1, running=5)),
        ["b", "c", "a"],
    ),
    Case(
        "of required ones the smaller part of the minimum",
        group(2, some("ab", 2, running=3), some("cd", 4, running=4)),
        ["c", "d", "a", "b"],
    ),
    Case(
        "of optional ones the fewer members",
        group(0, some("ab", 0, running=2), some("cd", 0, running=1)),
        ["c", "a", "d", "b"],
    ),
    Case(
        "equal ones by name, in turn",
        group(2, some("ab", 1, running=1), some("cd", 1, running=1)),
        ["a", "c", "b", "d"],
    ),
    Case(
        "a group counts its satisfied children, a PodSet its members",
        group(0, group(1, some("ab", 1, running=5), name="x"), some("cd", 2, running=3, name="y")),
        ["a", "b", "c", "d"],
    ),
    Case(
        "k of n groups of groups",
        group(
            1,
            group(2, some("ab", 2), some("c", 2), name="x"),
            group(2, some("d", 1), some("ef", 1), name="y"),
        ),
        ["d e", "f"],
    ),
    Case(
        "a child that is not satisfied and cannot be gives nothing, and the next is asked",
        group(0, some("a", 2), some("b", 0, running=7)),
        ["b"],
    ),
    Case("with a minimum of 0 a child may lack what it needs", group(0, some("a", 2)), []),
    Case(
        "optional PodSets beside needed ones wait for their turn",
        group(2, some("a", 0), some("bc", 2)),
        ["bc", "a"],
    ),
    Case("later pods fill a group", group(2, some("a", 1), some("b", 2, later=1)), ["a b+"]),
]


@pytest.mark.parametrize("case", TASKS, ids=ids)
def test_tasks_to_allocate_of_a_podgroup(case: Case[SubGroupTree, list[str]]) -> None:
    """Each attempt takes what is needed next, until nothing waits."""
    assigned = AssignedTasks()
    got: list[str] = []
    while (taken := tasks_to_allocate(case.given, assigned)) and len(got) < 10:
        got.append(described(taken))
        assigned.add(taken)
    assert got == case.want


# a tree -> is it satisfied, can it be, and its state
MIN_AVAILABLE_STATES: list[Case[SubGroupTree, tuple[bool, bool, int]]] = [
    Case("nothing needed, nothing there", some("a", 0), (True, True, 0)),
    Case("below the minimum it is not satisfied", some("ab", 2, running=1), (False, True, -1)),
    Case("below for good", some("", 2, running=1), (False, False, -1)),
    Case("at the minimum it is satisfied", some("a", 1, running=1), (True, True, 0)),
    Case("above the minimum it is satisfied", some("", 1, running=2), (True, True, 1)),
    Case("with succeeded pods", some("", 2, running=1, succeeded=2), (True, True, 1)),
    Case(
        "reserved places are as good as pods",
        some("", 2, reserved_places=2, later=2),
        (True, True, 0),
    ),
    Case(
        "reserved places that pods have come for are not",
        some("ab", 2, reserved_places=2),
        (False, True, -1),
    ),
    Case("later pods may satisfy", some("", 2, later=2), (False, True, -1)),
    Case(
        "pods in reserved places are not counted again as later",
        some("", 3, reserved_places=2, later=2),
        (False, False, -1),
    ),
    Case("a group below", group(2, some("", 1, running=1), some("b", 1)), (False, True, -1)),
    Case("a group at it", group(1, some("", 1, running=1), some("b", 1)), (True, True, 0)),
    Case(
        "a group with a child too many",
        group(1, some("", 1, running=1), some("", 1, running=1)),
        (True, True, 1),
    ),
    Case(
        "a group with a pod too many",
        group(1, some("", 1, running=2), some("b", 1)),
        (True, True, 1),
    ),
    Case(
        "a pod of an unsatisfied one can be spared",
        group(0, some("", 3, running=2)),
        (True, True, 1),
    ),
    Case(
        "satisfied children without members are nothing to spare",
        group(0, some("", 0), some("", 0)),
        (True, True, 0),
    ),
    Case(
        "what a child has that is not needed can be spared",
        group(1, some("", 1, running=1), group(1, some("", 2, running=1))),
        (True, True, 1),
    ),
    Case("a group of nothing is satisfied", group(0), (True, True, 0)),
]


@pytest.mark.parametrize("case", MIN_AVAILABLE_STATES, ids=ids)
def test_standing(case: Case[SubGroupTree, tuple[bool, bool, int]]) -> None:
    """Whether a PodGroup has its minimum, could have it, and has more."""
    tree = case.given
    assert (is_satisfied(tree), can_be_satisfied(tree), min_available_state(tree)) == case.want


def test_reserved_places_are_given_up_in_order() -> None:
    """Each pod that was placed has taken the first reserved place left."""
    reserved_places = tuple(ReservedPlace(node, 0, ReservationCause.ANTICIPATED) for node in (4, 7))
    podset = PodSet("a", 2, (0, 1), reserved_places=reserved_places)
    assigned = AssignedTasks()
    assert assigned.unused_places(podset) == reserved_places
    assigned.add((PodSetTasks(podset, (0,), 0),))
    assert assigned.unused_places(podset) == reserved_places[1:]


def test_podsets_are_found_at_every_depth() -> None:
    tree = group(0, some("a", 0), group(0, some("b", 0), group(0, some("c", 0))))
    assert [podset.name for podset in podsets_of(tree)] == ["a", "b", "c"]


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> SubGroupTree:
    podsets = itertools.count()

    def grow(left: int) -> SubGroupTree:
        name = f"{next(podsets)}"
        if not left or draw(st.booleans()):
            waiting = tuple(range(draw(st.integers(0, 4))))
            return PodSet(name, draw(st.integers(0, 3)), waiting, draw(st.integers(0, 3)))
        children = tuple(grow(left - 1) for _ in range(draw(st.integers(0, 4))))
        return SubGroupSet(name, draw(st.integers(0, len(children))), children)

    return grow(depth)


@given(trees())
def test_growth_takes_what_would_be_taken_anyway(tree: SubGroupTree) -> None:
    """It only knows the order of children from the last time."""
    assigned, elastic_tasks = AssignedTasks(), ElasticTasks(tree)
    while more := tasks_to_allocate(tree, assigned):
        assert elastic_tasks.next(assigned) == more
        assigned.add(more)
    assert elastic_tasks.next(assigned) == ()
