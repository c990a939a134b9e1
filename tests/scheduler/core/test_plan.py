"""The one question: who gets which room now, and why the others wait."""

from typing import Final, NamedTuple

import pytest

from scheduler.core.decision import (
    Admission,
    BarNumbers,
    MemberNumbers,
    Missing,
    NodeNumbers,
    Plan,
    QuotaNumbers,
    Stats,
)
from scheduler.core.model import (
    UNBOUND,
    Bar,
    Cause,
    Group,
    Kind,
    Leaf,
    Shape,
    Slot,
    Snapshot,
    Term,
    Verdict,
)
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.snapshotted import neighbours

POLICIES: Final = choose(Choice())
GPU: Final = shape(gpu=1)
TWO: Final = shape(gpu=2)
CPU: Final = shape(cpu=4)
BARRED: Final = Bar(Verdict.QUEUE_MISSING, "there is no queue red", frozenset({"queues"}))

STAGE: Final = Bar(Verdict.WAITING_FOR_STAGE, "the data set comes first")


class G(NamedTuple):
    """A gang of equal pods; None as minimum means all of them."""

    pods: int
    shape: Shape = GPU
    minimum: int | None = None
    queue: str = ""
    priority: int = 50
    is_preemptible: bool = True
    there: int = 0
    later: int = 0
    slots: tuple[tuple[int, Shape], ...] = ()
    bar: Bar | None = None
    is_kept: bool = False


class Site(NamedTuple):
    """Nodes, gangs, and queues."""

    nodes: list[Node]
    gangs: list[G]
    queues: list[Queue] = [Queue("team", quota=UNBOUND)]  # noqa: RUF012 - nobody adds to it

    def snapshot(self) -> Snapshot:
        """Return the snapshot."""
        build = Builder(nodes=self.nodes, queues=self.queues)
        for it in self.gangs:
            slots = tuple(Slot(n, build.shape(one), Cause.ANTICIPATED) for n, one in it.slots)
            waiting = build.pods(it.pods, it.shape)
            minimum = it.pods if it.minimum is None else it.minimum
            row = build.shape(it.shape)
            leaf = Leaf("a", minimum, waiting, it.there, 0, slots, it.later, row)
            build.unit(
                leaf,
                queue=it.queue,
                priority=it.priority,
                is_preemptible=it.is_preemptible,
                bar=it.bar,
                is_kept=it.is_kept,
            )
        return build.snapshot(neighbours=neighbours(len(self.nodes)))


def told(got: Plan) -> list[str]:
    """Return decisions in their order: ~ waits, + is reserved, ! is a start; then rejections."""
    waiting = [f"{it.unit} {it.verdict.title}" for it in got.rejections]
    return [*map(_one, got.decisions), *waiting]


def _one(it: Admission) -> str:
    parts = [
        *(f"{node}" for _, node in it.binds),
        *(f"~{node}" for _, node in it.nominations),
        *(f"+{held.node}" * held.number for held in it.reservations),
    ]
    return f"{it.unit}: {' '.join(parts)}{'!' if it.is_start else ''}"


EIGHT: Final = [Node()]
SOON: Final = [Node(gpu=2, releasing_gpu=1)]
FULL: Final = Node(gpu=1, used_gpu=1)
TEAMS: Final = [Queue("red"), Queue("blue")]


def bound(**more: float) -> list[Queue]:
    """Return a queue with bounds, and no bound on its quota unless it is said."""
    return [Queue("team", **{"quota": UNBOUND, **more})]  # type: ignore[arg-type] # all are numbers


# a site -> what comes of it
PLANS: list[Case[Site, list[str]]] = [
    Case("nothing waits", Site(EIGHT, []), []),
    Case("a gang starts whole", Site(EIGHT, [G(2)]), ["0: 0 0!"]),
    Case("or not at all", Site(EIGHT, [G(9)]), ["0 NoCapacity"]),
    Case(
        "the next one may fit", Site(EIGHT, [G(9), G(8)]), ["1: 0 0 0 0 0 0 0 0!", "0 NoCapacity"]
    ),
    Case("nobody can take it", Site(EIGHT, [G(1, shape(gpu=9))]), ["0 NoNodeMatches"]),
    Case("in pieces", Site([Node(gpu=2, used_gpu=1)] * 2, [G(1, TWO)]), ["0 Fragmented"]),
    Case("what runs and wants nothing is not told", Site(EIGHT, [G(0, there=3)]), []),
    Case(
        "the larger priority first",
        Site(EIGHT, [G(8), G(1, priority=60)]),
        ["1: 0!", "0 NoCapacity"],
    ),
    Case(
        "who is below its minimum before who wants more",
        Site(EIGHT, [G(3, minimum=1), G(2, minimum=1)]),
        ["0: 0!", "1: 0!", "0: 0", "1: 0", "0: 0"],
    ),
    Case("who has something does not start", Site(EIGHT, [G(1, minimum=2, there=1)]), ["0: 0"]),
    Case(
        "who wants more and finds nothing waits, though it runs",
        Site([Node(gpu=1)], [G(2, minimum=1)]),
        ["0: 0!", "0 NoCapacity"],
    ),
    Case(
        "queues take turns",
        Site(EIGHT, [G(1), G(1), G(1, queue="red"), G(1, queue="red")], TEAMS),
        ["2: 0!", "0: 0!", "3: 0!", "1: 0!"],
    ),
    Case("up to the limit", Site(EIGHT, [G(2)], bound(limit=2)), ["0: 0 0!"]),
    Case("not past the limit", Site(EIGHT, [G(2)], bound(limit=1)), ["0 ExceedsLimit"]),
    Case(
        "what was given counts",
        Site(EIGHT, [G(1), G(1), G(1, CPU)], bound(limit=1)),
        ["0: 0!", "2: 0!", "1 ExceedsLimit"],
    ),
    Case(
        "what is not asked for is not looked at",
        Site(EIGHT, [G(1, CPU)], bound(limit=1, allocated=3)),
        ["0: 0!"],
    ),
    Case(
        "a limit above",
        Site(EIGHT, [G(2)], [Queue("all", limit=1), Queue("team", "all")]),
        ["0 ExceedsLimit"],
    ),
    Case(
        "who cannot be preempted stays within the quota",
        Site(EIGHT, [G(2, is_preemptible=False), G(1, is_preemptible=False)], bound(quota=1)),
        ["1: 0!", "0 NonPreemptibleOverQuota"],
    ),
    Case("who can be may have more", Site(EIGHT, [G(2)], bound(quota=1)), ["0: 0 0!"]),
    Case(
        "only what is fixed counts against the quota",
        Site(EIGHT, [G(1, is_preemptible=False)], bound(quota=1, allocated=3)),
        ["0: 0!"],
    ),
    Case(
        "who can be preempted takes nothing of the quota from who cannot",
        Site(EIGHT, [G(1), G(1, is_preemptible=False)], bound(quota=1)),
        ["0: 0!", "1: 0!"],
    ),
    Case(
        "a limit is told before a quota",
        Site(EIGHT, [G(2, is_preemptible=False)], bound(quota=1, limit=1)),
        ["0 ExceedsLimit"],
    ),
    Case("pods are missing", Site(EIGHT, [G(1, minimum=2)]), ["0 PodsMissing"]),
    Case("what is known before is told", Site(EIGHT, [G(1, bar=BARRED)]), ["0 QueueMissing"]),
    Case("a stage is told", Site(EIGHT, [G(1, bar=STAGE)]), ["0 WaitingForStage"]),
    Case(
        "pods that are missing are told before a stage",
        Site(EIGHT, [G(1, minimum=2, bar=STAGE)]),
        ["0 PodsMissing"],
    ),
    Case(
        "a missing queue is told before pods that are missing",
        Site(EIGHT, [G(1, minimum=2, bar=BARRED)]),
        ["0 QueueMissing"],
    ),
    Case("a bar of who wants nothing is not told", Site(EIGHT, [G(0, bar=BARRED)]), []),
    Case("later pods are reserved", Site(EIGHT, [G(1, minimum=3, later=2)]), ["0: 0 +0+0!"]),
    Case(
        "reservations count",
        Site(EIGHT, [G(1, minimum=3, later=2), G(1)], bound(limit=3)),
        ["0: 0 +0+0!", "1 ExceedsLimit"],
    ),
    Case(
        "what runs is completed",
        Site(EIGHT, [G(0, minimum=2, there=1, later=1, is_kept=True)]),
        ["0: +0"],
    ),
    Case("unless nothing of it is kept", Site(EIGHT, [G(0, minimum=2, there=1, later=1)]), []),
    Case(
        "what runs and is whole is left alone",
        Site(EIGHT, [G(0, minimum=1, there=1, later=1, is_kept=True)]),
        [],
    ),
    Case(
        "what runs and cannot be completed is told",
        Site([FULL], [G(0, minimum=2, there=1, later=1, is_kept=True)]),
        ["0 NoCapacity"],
    ),
    Case("what is being released is waited for", Site(SOON, [G(2)]), ["0: ~0 ~0"]),
    Case(
        "who could start does, and more of it waits",
        Site(SOON, [G(2, minimum=1)]),
        ["0: 0!", "0: ~0"],
    ),
    Case(
        "what is waited for is not given twice",
        Site(SOON, [G(2), G(1)]),
        ["0: ~0 ~0", "1 NoCapacity"],
    ),
    Case(
        "who waits for room counts against the limit",
        Site([Node(releasing_gpu=8)], [G(2), G(1)], bound(limit=2)),
        ["0: ~0 ~0", "1 ExceedsLimit"],
    ),
    Case("a pod takes its slot", Site([FULL], [G(1, slots=((0, GPU),))]), ["0: 0!"]),
    Case(
        "who takes its slot has it already",
        Site([FULL], [G(1, slots=((0, GPU),))], bound(limit=1, allocated=1)),
        ["0: 0!"],
    ),
    Case(
        "a pod that is larger than its slot takes the difference",
        Site(
            [Node(gpu=2, used_gpu=1)], [G(1, TWO, slots=((0, GPU),))], bound(limit=1, allocated=1)
        ),
        ["0 ExceedsLimit"],
    ),
    Case(
        "no room for others is none for who has a slot no longer",
        Site([FULL], [G(1), G(1, slots=((0, GPU),)), G(1)]),
        ["1: 0!", "0 NoCapacity", "2 NoCapacity"],
    ),
    Case(
        "slots that are given up may make room again",
        Site([Node(gpu=2, used_gpu=2)], [G(1), G(1, slots=((0, TWO),)), G(1)]),
        ["1: 0!", "2: 0!", "0 NoCapacity"],
    ),
    Case(
        "who could not be near others can be, once they are there",
        Site(
            [Node(labels=(0,))],
            [
                G(1, shape(near=(Term(0, 0),))),
                G(1, shape(matches=(0,))),
                G(1, shape(near=(Term(0, 0),))),
            ],
        ),
        ["1: 0!", "2: 0!", "0: 0!"],
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_plans(case: Case[Site, list[str]]) -> None:
    """Rules 5 to 27 put together."""
    assert told(plan(case.given.snapshot(), POLICIES)) == case.want


def test_groups_are_told_by_what_is_missing_of_them() -> None:
    """Leaf by leaf: how many there are, how many are needed."""
    build = Builder(nodes=EIGHT)
    first = Leaf("driver", 1, build.pods(1, GPU))
    second = Leaf("worker", 6, build.pods(2, GPU), there=1, succeeded=1, gated=1)
    build.unit(Group("all", 2, (first, second)))
    (rejection,) = plan(build.snapshot(), POLICIES).rejections
    assert rejection.numbers == MemberNumbers((Missing("worker", 5, 6, gated=1),))
    assert rejection.wakes_on == {"unit:0"}
    assert not rejection.is_curable


def test_what_can_never_join_is_told() -> None:
    """One of two sub-groups starts; of the other a pod waits that nobody will join."""
    build = Builder(nodes=EIGHT)
    first, second = Leaf("a", 1, build.pods(1, GPU)), Leaf("b", 2, build.pods(1, GPU))
    build.unit(Group("all", 1, (first, second)))
    got = plan(build.snapshot(), POLICIES)
    assert told(got) == ["0: 0!", "0 PodsMissing"]
    assert got.rejections[0].numbers == MemberNumbers((Missing("b", 1, 2),))


def test_nothing_is_held_for_what_is_not_needed() -> None:
    """A unit that runs and has its minimum is left alone, though a sub-group is not complete."""
    build = Builder(nodes=EIGHT)
    row = build.shape(GPU)
    first, second = Leaf("a", 1, there=1), Leaf("b", 1, later=1, later_shape=row)
    build.unit(Group("all", 1, (first, second)), is_kept=True)
    build.unit(Group("all", 2, (first, second)), is_kept=True)
    assert told(plan(build.snapshot(), POLICIES)) == ["1: +0"]


def test_a_group_starts_with_all_that_it_needs() -> None:
    """Sub-groups together, then the rest one by one."""
    build = Builder(nodes=[Node(gpu=4), Node(gpu=4)])
    first = Leaf("driver", 1, build.pods(1, CPU))
    second = Leaf("worker", 2, build.pods(4, TWO))
    build.unit(Group("all", 2, (first, second)))
    got = plan(build.snapshot(), POLICIES)
    assert told(got) == ["0: 0 0 0!", "0: 1", "0: 1"]


def test_a_bound_is_told_with_its_numbers() -> None:
    """Which queue, which resource, how much of it."""
    queues = [Queue("all", limit=3, allocated=2, quota=1), Queue("team", "all", allocated=1)]
    (rejection,) = plan(Site(EIGHT, [G(2)], queues).snapshot(), POLICIES).rejections
    assert rejection.numbers == QuotaNumbers(0, Kind.GPU, 3000, 2000, 2000)
    assert rejection.wakes_on == {"queue:0"}
    assert not rejection.is_curable


def test_a_bar_is_told_as_it_is() -> None:
    """Its message, and what it waits for."""
    (rejection,) = plan(Site(EIGHT, [G(1, bar=BARRED)]).snapshot(), POLICIES).rejections
    assert rejection.numbers == BarNumbers("there is no queue red")
    assert rejection.wakes_on == {"queues"}


def test_lack_of_room_is_told_with_numbers() -> None:
    """How far it got; equal units have the same ones."""
    got = plan(Site([Node(gpu=2)], [G(3), G(3)]).snapshot(), POLICIES).rejections
    numbers = got[0].numbers
    assert isinstance(numbers, NodeNumbers)
    assert (numbers.placed, numbers.needed) == (2, 3)
    assert got[0].wakes_on == {"room", "nodes"}
    assert got[0].is_curable
    assert got[1].numbers is numbers


def test_what_was_done_is_counted() -> None:
    """A unit that grows is admitted twice."""
    got = plan(Site([Node(gpu=2)], [G(3, minimum=1), G(1)]).snapshot(), POLICIES)
    assert told(got) == ["0: 0!", "1: 0!", "0 NoCapacity"]
    assert got.stats == Stats(admitted=2, rejected=1)


def test_what_is_not_to_be_done_is_not_done() -> None:
    """Without allocate a unit that has room is not bound, and keeps its room from the others."""
    policies = choose(Choice(actions={"allocate": False}))
    got = plan(Site(EIGHT, [G(1), G(1, bar=BARRED), G(9), G(8)]).snapshot(), policies)
    assert told(got) == ["1 QueueMissing", "2 NoCapacity", "3 NoCapacity"]
    assert got.decisions == ()
    assert got.fair_share[:, Kind.GPU].tolist() == [8000]


def test_shares_are_told() -> None:
    """By queue, as at the beginning of the plan."""
    queues = [Queue("red", quota=2), Queue("blue", weight=3)]
    site = Site(EIGHT, [G(8, queue="red"), G(8, queue="blue")], queues)
    got = plan(site.snapshot(), POLICIES)
    assert got.fair_share[:, Kind.GPU].tolist() == [4000, 4000]
