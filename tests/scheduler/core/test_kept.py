"""Who may claim something and takes nothing, and what is said of it (rules 36 to 37a)."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.decision import Plan
from scheduler.core.explain import explain, for_kai
from scheduler.core.model import (
    NONE,
    Budgets,
    Cause,
    Group,
    Leaf,
    Slot,
    Snapshot,
    Verdict,
)
from scheduler.core.plan import Limits, plan
from scheduler.core.policy import Policies
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape

POLICIES = choose(Choice())
KEEPS = choose(Choice(disruption_budgets="always"))
ONE = shape(gpu=1)


def lent(*, queue: str = "b", **more: Any) -> Builder:
    """Return a node of which A has all, and half of it belongs to B, of which somebody waits."""
    builder = Builder([Node(gpu=8)], [Queue("a"), Queue("b", quota=4)])
    for _ in range(8):
        builder.runs([0], ONE, queue="a")
    builder.gang(1, ONE, queue=queue, **more)
    return builder


def told(answer: Plan) -> str:
    """Return who goes, and for whom."""
    return " ".join(f"{','.join(map(str, it.units))}→{it.claimant}" for it in answer.evictions)


def said(snapshot: Snapshot, unit: int = 8, policies: Policies = POLICIES) -> tuple[str, str]:
    """Return the verdict on a unit, and what is said of it beyond its numbers."""
    (one,) = [it for it in plan(snapshot, policies).rejections if it.unit == unit]
    return one.verdict.title, explain(snapshot, one).partition(" free. ")[2]


def test_who_is_patient_takes_nothing_yet() -> None:
    """Not before the time that it gave others is over."""
    builder = lent(patient_until=100)
    assert told(plan(builder.snapshot(now=99), POLICIES)) == ""
    assert told(plan(builder.snapshot(now=100), POLICIES)) == "7→8"


def test_patience_is_told() -> None:
    """Until when, as users read times, and in whose words."""
    snapshot = lent(patient_until=100, patience="90s").snapshot(now=99)
    (one,) = plan(snapshot, POLICIES).rejections
    assert one.wakes_on == {"room", "nodes", "time"}
    words = "It takes nothing from others before 1970-01-01T00:01:40Z"
    assert said(snapshot) == (
        "PreemptionDelay",
        f"{words}, when its preemptionDelay of 90s is over",
    )
    reason, message = for_kai(snapshot, one)
    assert (reason, message) == ("PreemptionDelayNotElapsed", explain(snapshot, one))


def test_the_end_of_time_is_told() -> None:
    """Nobody can mean it, and nothing breaks."""
    assert "before 9999-12-31T23:59:59Z" in said(lent(patient_until=2**60).snapshot())[1]


def test_patience_in_vain_is_not_told() -> None:
    """A unit of A may take nothing, now or later: its verdict is what it was."""
    assert said(lent(queue="a", patient_until=100).snapshot()) == ("NoCapacity", "")


def test_patience_of_many_equal_ones_is_told_of_each() -> None:
    """Though only the first one is looked at; who is not patient goes on."""
    builder = lent(patient_until=100)
    builder.gang(1, ONE, queue="b", patient_until=200)
    builder.gang(1, ONE, queue="b")
    answer = plan(builder.snapshot(), POLICIES)
    assert told(answer) == "7→10"
    assert {it.unit: it.verdict for it in answer.rejections} == {
        8: Verdict.PREEMPTION_DELAY,
        9: Verdict.PREEMPTION_DELAY,
    }


def test_patience_in_a_queue() -> None:
    """In preempt as well; that it may not be over a limit is told as before, with the patience."""
    builder = Builder([Node(gpu=8)], [Queue("a", quota=8, limit=4)])
    for _ in range(4):
        builder.runs([0], ONE, priority=40)
    builder.gang(1, ONE, patient_until=100)
    (one,) = plan(builder.snapshot(), POLICIES).rejections
    assert one.verdict == Verdict.PREEMPTION_DELAY
    text = explain(builder.snapshot(), one)
    assert text.startswith("queue a may have at most 4 GPU and has 4 GPU; 1 GPU more is needed. ")
    assert text.endswith("Z, when its preemptionDelay is over")


def test_who_is_patient_may_use_what_others_left() -> None:
    """It takes nothing from anybody then."""
    builder = Builder([Node(gpu=8)], [Queue("a"), Queue("b", quota=8)])
    builder.runs([0] * 8, ONE, queue="a")
    builder.gang(7, ONE, queue="b")
    builder.gang(1, ONE, queue="b", patient_until=100)
    answer = plan(builder.snapshot(), POLICIES)
    assert {it.unit for it in answer.decisions} == {1, 2}


def test_who_has_lost_all_step_by_step_has_nothing() -> None:
    """It needs nothing, and what it had is gone: nobody waits for time to take that."""
    builder = Builder([Node(gpu=1)], [Queue("a", quota=-1)])
    builder.lying(0, builder.shape(ONE))
    leaf = Leaf("default", 1, there=1, pods=(0,))
    builder.unit(Group("", 0, (leaf,)), priority=30, is_kept=True)
    builder.gang(1, ONE, priority=60)
    builder.gang(1, ONE, priority=40, patient_until=100)
    answer = plan(builder.snapshot(), POLICIES)
    assert told(answer) == "0→1"
    assert [it.verdict for it in answer.rejections] == [Verdict.NO_CAPACITY]


def kept(**more: Any) -> Builder:
    """Return what is lent, three of it to units that keep it for one reason each."""
    builder = Builder([Node(gpu=4)], [Queue("a", reclaim_min_s=100), Queue("b", quota=4)])
    builder.runs([0], ONE, queue="a", stays="Kueue suspends and resumes it")
    builder.runs([0], ONE, queue="a", since=990)
    builder.runs([0], ONE, queue="a", since=980)
    builder.runs([0], ONE, queue="a")
    builder.gang(1, ONE, queue="b", **more)
    return builder


_BUDGETS = Budgets(("ns/pdb",), (0,), ((0,),), (NONE, NONE, NONE, 0, NONE))
_SOME = "Others stay: "
_STAYING = f"{_SOME}1 because Kueue suspends and resumes it"
_FORBIDDEN = "priority or preemptibility forbids it"
_YOUNG = "2 have not run for long enough: unit-2 may go from 1970-01-01T00:18:00Z on"
_COVERED = "Too few pods may go by PodDisruptionBudget ns/pdb"


def test_what_keeps_the_others_is_told() -> None:
    """Each by its own reason; and whoever waits hears of time and budgets."""
    snapshot = kept().snapshot(now=1000, budgets=_BUDGETS)
    assert said(snapshot, 4, KEEPS) == ("NoCapacity", f"{_STAYING}. {_YOUNG}. {_COVERED}")
    (one,) = plan(snapshot, KEEPS).rejections
    assert one.wakes_on == {"room", "nodes", "time", "budgets"}


def test_patience_is_told_beside_it() -> None:
    """Somebody could be taken, but for that."""
    verdict, text = said(kept(patient_until=1001).snapshot(now=1000), 4)
    assert verdict == "PreemptionDelay"
    assert text.startswith(f"{_STAYING}. {_YOUNG}. It takes nothing from others before ")


def test_a_budget_that_lets_one_go_is_told_to_who_needs_two() -> None:
    """It let too few go together."""
    builder = Builder([Node(gpu=2)], [Queue("a"), Queue("b", quota=2)])
    builder.runs([0], ONE, queue="a")
    builder.runs([0], ONE, queue="a")
    builder.gang(2, ONE, queue="b")
    budgets = Budgets(("ns/pdb",), (1,), ((0,),), (0, 0, NONE, NONE))
    snapshot = builder.snapshot(budgets=budgets)
    (one,) = plan(snapshot, KEEPS).rejections
    assert explain(snapshot, one).endswith(f". {_COVERED}")


def test_who_is_not_asked_keeps_nothing() -> None:
    """In preempt a unit that matters more stays for that, and no other reason is told."""
    builder = Builder([Node(gpu=1)], [Queue("a", quota=8)])
    builder.runs([0], ONE, priority=60, stays="Kueue suspends and resumes it")
    builder.gang(1, ONE, priority=50)
    assert said(builder.snapshot(), 1)[1] == ""
    builder.units[0] = replace(builder.units[0], priority=40)
    assert said(builder.snapshot(), 1)[1] == _STAYING


def test_who_takes_something_is_told_nothing() -> None:
    """And of units that have nothing nobody says that they stay."""
    snapshot = kept().snapshot(now=1000)
    assert told(plan(snapshot, POLICIES)) == "3→4"
    builder = Builder([Node(gpu=1)], [Queue("a"), Queue("b", quota=1)])
    builder.runs([0], ONE, queue="a", is_preemptible=False, stays="x")
    for more in ({"stays": "x"}, {"is_preemptible": False}):
        builder.gang(1, ONE, queue="a", **more)
    builder.gang(1, ONE, queue="b")
    assert said(builder.snapshot(), 3)[1] == f"{_SOME}1 because {_FORBIDDEN}"


def test_who_cannot_be_preempted_is_told() -> None:
    """With those who stay for another reason; in preempt only who matters less."""
    kueue = "1 because Kueue suspends and resumes it"
    for quota, unit, others in ((-1, 4, 2), (0, 5, 3)):
        builder = Builder([Node(gpu=4)], [Queue("a", quota=quota), Queue("b", quota=2)])
        for priority in (40, 50, 60):
            builder.runs([0], ONE, queue="a", priority=priority, is_preemptible=False)
        builder.runs([0], ONE, queue="a", stays="Kueue suspends and resumes it")
        builder.gang(1, ONE, queue="a", priority=60)
        builder.gang(1, ONE, queue="b")
        told = said(builder.snapshot(), unit)[1]
        assert told == f"{_SOME}{kueue}; {others} because {_FORBIDDEN}"


def test_who_is_on_his_way_keeps_his_place() -> None:
    """Nothing of him is there but his slots."""
    builder = Builder([Node(gpu=1)], [Queue("a"), Queue("b", quota=1)])
    slot = Slot(0, builder.shape(ONE), Cause.MOVE)
    leaf = Leaf("default", 1, slots=(slot,), later=1, later_shape=slot.shape)
    builder.unit(leaf, queue="a", stays="it is on its way", is_kept=True)
    builder.runs([0], ONE, queue="a", is_preemptible=False)
    builder.gang(1, ONE, queue="b")
    assert "1 because it is on its way" in said(builder.snapshot(), 2)[1]


def test_who_waits_because_enough_was_taken_is_told() -> None:
    """Nobody is looked at any more; while there is something left nobody is told."""
    snapshot = lent().snapshot()
    (one,) = plan(snapshot, POLICIES, Limits(evictable_gpus=0)).rejections
    assert explain(snapshot, one).endswith("enough was taken from others within a minute")
    rest = plan(snapshot, POLICIES, Limits(evictable_gpus=1)).rejections
    assert not [it for it in rest if "enough was taken" in explain(snapshot, it)]


@pytest.mark.parametrize(
    ("quota", "priority", "is_told"),
    [(0, 50, False), (2, 50, True), (0, 60, True)],
    ids=["no claim", "a claim", "a larger priority"],
)
def test_who_could_claim_nothing_is_not_told_so(quota: int, priority: int, is_told: bool) -> None:
    """It would not help to wait for that minute."""
    builder = Builder([Node(gpu=2)], [Queue("a"), Queue("b", quota=quota)])
    builder.runs([0], ONE, queue="a")
    builder.runs([0], ONE, queue="b")
    builder.gang(1, ONE, queue="b", priority=priority)
    snapshot = builder.snapshot()
    made = plan(snapshot, POLICIES, Limits(evictable_gpus=0))
    (one,) = made.rejections
    assert ("enough was taken" in explain(snapshot, one)) is is_told
    assert made.stats.withheld == is_told


def beside(*, quota: int) -> Snapshot:
    """Return a node that A has whole, and B, which waits, below a queue with a goal."""
    queues = [Queue("all", quota=2, is_quota_only=True), Queue("a", "all")]
    builder = Builder([Node(gpu=2)], [*queues, Queue("b", "all", quota=quota)])
    for _ in range(2):
        builder.runs([0], ONE, queue="a")
    builder.gang(1, ONE, queue="b")
    return builder.snapshot()


def test_whose_goal_forbids_it_is_told() -> None:
    """The queue above is named; what is owed to B it takes back all the same."""
    words = "Below queue all nothing is taken back beyond quotas: its reclaim-goal is quota-only"
    assert said(beside(quota=0), 2) == ("NoCapacity", words)
    assert told(plan(beside(quota=1), POLICIES)) == "1→2"


def test_a_goal_that_changes_nothing_is_not_told() -> None:
    """Nobody beside B has more than its share, or it is owed what it asks for, in vain."""
    queues = [Queue("all", quota=4, is_quota_only=True), Queue("a", "all", quota=2)]
    for quota in (0, 2):
        builder = Builder([Node(gpu=2)], [*queues, Queue("b", "all", quota=quota)])
        builder.runs([0, 0], ONE, queue="a")
        builder.gang(1, ONE, queue="b")
        assert "reclaim-goal" not in said(builder.snapshot(), 1)[1]


def test_a_queue_without_a_bound_is_told() -> None:
    """It owes nothing back; one that has none of what is asked for is not named."""
    queues = [Queue("a", quota=NONE), Queue("idle", quota=NONE), Queue("b", quota=2)]
    builder = Builder([Node(gpu=2)], queues)
    for _ in range(2):
        builder.runs([0], ONE, queue="a")
    builder.runs([0], shape(), queue="idle")
    builder.gang(1, ONE, queue="b")
    words = "Queue a owes nothing back: its quota has no bound"
    assert said(builder.snapshot(), 3) == ("NoCapacity", words)


# what else is known of who stands before, which asks for eight of a node -> why it cannot have them
FRONT: list[Case[dict[str, Any], str]] = [
    Case(
        "a quota",
        {"is_preemptible": False},
        "a quota of its queues has no room for it",
    ),
    Case("due four", {}, "its queue would have more than its fair share"),
]


@pytest.mark.parametrize("case", FRONT, ids=ids)
def test_that_who_stands_before_waits_in_vain_is_told(case: Case[dict[str, Any], str]) -> None:
    """To who is behind, for it may wait for ever."""
    builder = Builder([Node()], [Queue("a", quota=4), Queue("b", quota=4)])
    for queue in ("a", "a", "a", "b"):
        builder.runs([0, 0], ONE, queue=queue)
    builder.gang(1, shape(gpu=8), queue="b", **case.given)
    builder.gang(1, shape(gpu=2), queue="b")
    text = said(builder.snapshot(), 5)[1]
    assert f" and cannot have it: {case.want}. It has its turn once that one starts, " in text


def test_what_only_the_pods_of_others_forbid_is_no_lack_of_room() -> None:
    """Somebody has its port: with nobody else there it would have that, and all the room."""
    builder = Builder([Node()], [Queue("a", quota=4), Queue("b", quota=4)])
    for queue in ("a", "a", "a", "b"):
        builder.runs([0, 0], ONE, queue=queue)
    builder.gang(1, shape(gpu=8, takes=(0,), avoids=(0,)), queue="b")
    builder.gang(1, shape(gpu=2), queue="b")
    snapshot = builder.snapshot()
    ports = snapshot.nodes.ports.copy()
    ports[0, 0] = 1
    snapshot = replace(snapshot, nodes=replace(snapshot.nodes, ports=ports))
    assert said(snapshot, 5)[1].endswith("which asks for 1 CPU, 1 GiB memory, 8 GPU")
