"""Turns in rounds: what one unit's failure says of others, and what is told at the end."""

from dataclasses import replace
from typing import Final

from scheduler.core.decision import NodeNumbers, Plan, Rejection
from scheduler.core.model import Cause, Group, Leaf, Require, Shape, Slot, Verdict
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from tests.support.snapshots import Builder, Node, shape

POLICIES: Final = choose(Choice())
FAST: Final = ((((Require(0, frozenset({0})),)),),)


def mixed(build: Builder, first: Shape, second: Shape) -> int:
    """Add a unit of two pods that differ."""
    pods = (*build.pods(1, first), *build.pods(1, second))
    return build.unit(Leaf("a", 2, pods))


def of(made: Plan, unit: int) -> Rejection:
    """Return why a unit waits."""
    return next(it for it in made.rejections if it.unit == unit)


def test_what_failed_may_fit_for_others_later() -> None:
    """Others took the room of the one node, so the small pod leaves the other to the large one."""
    build = Builder([Node(gpu=4, labels=(0,)), Node(gpu=8)])
    small, large = shape(gpu=1), shape(gpu=4, any_of=FAST)
    mixed(build, small, large)
    build.gang(1, shape(gpu=5))
    mixed(build, small, large)

    made = plan(build.snapshot(), POLICIES)

    assert [it.unit for it in made.decisions] == [1, 2]
    assert of(made, 0).verdict == Verdict.NO_CAPACITY


def test_what_is_told_is_true_of_the_end() -> None:
    """Who failed while there was enough in pieces is told that nothing is left."""
    build = Builder([Node(gpu=8, used_gpu=4), Node(gpu=8, used_gpu=4)])
    for gpus in (5, 4, 4, 5):
        build.gang(1, shape(gpu=gpus))

    made = plan(build.snapshot(), POLICIES)

    for unit in (0, 3):
        numbers = of(made, unit).numbers
        assert isinstance(numbers, NodeNumbers)
        assert (numbers.verdict, numbers.largest[3]) == (Verdict.NO_CAPACITY, 0)


def test_who_grows_after_a_failure_is_not_told_of_it() -> None:
    """A verdict goes when the unit gets what it lacked."""
    build = Builder([Node(gpu=2, used_gpu=2)])
    build.gang(1, shape(gpu=1))
    row = build.shape(shape(gpu=2))
    slot = Slot(0, row, Cause.ANTICIPATED)
    build.unit(Leaf("a", 1, build.pods(1, shape(gpu=1)), slots=(slot,), later=0, later_shape=row))

    made = plan(build.snapshot(), POLICIES)

    assert [it.unit for it in made.decisions] == [1, 0]
    assert made.rejections == ()


def test_slots_alone_are_taken_by_nobody() -> None:
    """Nothing would hold them; who has a pod there takes them."""
    build = Builder([Node()])
    row = build.shape(shape(gpu=1))
    later = Leaf("b", 2, later=2, later_shape=row)
    build.unit(Group("", 1, (Leaf("a", 2, build.pods(1, shape(gpu=1))), later)))
    build.lying(0, row)
    there = Leaf("a", 2, there=1, pods=(1,))
    build.unit(Group("", 1, (there, later)), is_kept=True)

    made = plan(build.snapshot(), POLICIES)

    assert [it.unit for it in made.decisions] == [1]
    assert of(made, 0).verdict == Verdict.PODS_MISSING


def test_nothing_is_bound_beside_slots_that_wait_for_room() -> None:
    """The slots were promised what is being released, and it is not there yet."""
    build = Builder([Node(gpu=3, used_gpu=3), Node(gpu=1)])
    row = build.shape(shape(gpu=1))
    slots = (Slot(0, row, Cause.ANTICIPATED),) * 2
    launcher = build.pods(1, shape(gpu=1))
    workers = Leaf("worker", 2, slots=slots, later=2, later_shape=row)
    build.unit(Group("", 2, (Leaf("launcher", 1, launcher), workers)), is_kept=True)
    snapshot = build.snapshot()
    idle, releasing = snapshot.nodes.idle.copy(), snapshot.nodes.releasing.copy()
    idle[0, 3], releasing[0, 3] = -2000, 2000  # the slots are charged, the others not yet gone
    promised = build.snapshot(nodes=replace(snapshot.nodes, idle=idle, releasing=releasing))

    (backed,), (unbacked,) = (plan(it, POLICIES).decisions for it in (snapshot, promised))

    assert (len(backed.binds), len(backed.nominations)) == (1, 0)
    assert (len(unbacked.binds), len(unbacked.nominations)) == (0, 1)
