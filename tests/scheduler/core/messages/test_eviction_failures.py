"""Messages on PodGroups that may evict others and evict none (rules 36 to 37a)."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.messages.rejection_messages import kai_condition, rejection_message
from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace, SubGroupSet
from scheduler.core.model.rejections import ClusterEvent
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Plan, Policies
from scheduler.core.model.snapshot import DisruptionBudgets, Snapshot
from scheduler.core.plan import PlanLimits, plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.scheduler.core.messages.eviction_failure_text import eviction_failure_text
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.reasons import UnschedulableReason

POLICIES = build_policies(PolicySelection())
KEEPS = build_policies(PolicySelection(disruption_budgets="always"))
ONE = signature(gpu=1)


def lent(*, queue: str = "b", **more: Any) -> Builder:
    """Return a node that A uses whole; B waits, and half of the node is within its quota."""
    builder = Builder([SnapshotNode(gpu=8)], [SnapshotQueue("a"), SnapshotQueue("b", quota=4)])
    for _ in range(8):
        builder.running_podgroup([0], ONE, queue="a")
    builder.uniform_podgroup(1, ONE, queue=queue, **more)
    return builder


def sentences(answer: Plan) -> str:
    """Return the victims, and the PodGroups that they are evicted for."""
    return " ".join(f"{','.join(map(str, it.podgroups))}→{it.preemptor}" for it in answer.evictions)


def sentence_of(
    snapshot: Snapshot, podgroup: int = 8, policies: Policies = POLICIES
) -> tuple[str, str]:
    """Return the reason on a PodGroup, and why no victim is evicted for it."""
    (one,) = [it for it in plan(snapshot, policies).rejections if it.podgroup == podgroup]
    return one.reason, eviction_failure_text(snapshot, one)


def test_a_preemption_delay_holds_evictions_back() -> None:
    """Not before the time that it gave others is over."""
    builder = lent(preemption_delay_until=100)
    assert sentences(plan(builder.snapshot(now=99), POLICIES)) == ""
    assert sentences(plan(builder.snapshot(now=100), POLICIES)) == "7→8"


def test_a_preemption_delay_is_reported() -> None:
    snapshot = lent(preemption_delay_until=100, preemption_delay="90s").snapshot(now=99)
    (one,) = plan(snapshot, POLICIES).rejections
    assert one.retry_on == _ON_FREE_RESOURCES | ClusterEvent.TIME_PASSED
    text = "No pod is evicted for it before 1970-01-01T00:01:40Z, when its preemption delay"
    assert sentence_of(snapshot) == ("PreemptionDelay", f"{text} of 90s ends")
    reason, message = kai_condition(snapshot, one)
    assert (reason, message) == ("PreemptionDelayNotElapsed", rejection_message(snapshot, one))


def test_the_end_of_time_is_reported() -> None:
    assert (
        "before 9999-12-31T23:59:59Z"
        in sentence_of(lent(preemption_delay_until=2**60).snapshot())[1]
    )


def test_a_preemption_delay_without_effect_is_not_reported() -> None:
    """A PodGroup of A may take nothing, now or later: its reason is what it was."""
    assert sentence_of(lent(queue="a", preemption_delay_until=100).snapshot()) == ("NoCapacity", "")


def test_a_preemption_delay_of_many_equal_ones_is_reported_of_each() -> None:
    """Though only the first is tried; a PodGroup without a delay is not affected."""
    builder = lent(preemption_delay_until=100)
    builder.uniform_podgroup(1, ONE, queue="b", preemption_delay_until=200)
    builder.uniform_podgroup(1, ONE, queue="b")
    answer = plan(builder.snapshot(), POLICIES)
    assert sentences(answer) == "7→10"
    assert {it.podgroup: it.reason for it in answer.rejections} == {
        8: UnschedulableReason.PREEMPTION_DELAY,
        9: UnschedulableReason.PREEMPTION_DELAY,
    }


def test_a_preemption_delay_in_one_queue() -> None:
    """In preempt as well; that it may not be over a limit is told as before, with the patience."""
    builder = Builder([SnapshotNode(gpu=8)], [SnapshotQueue("a", quota=8, limit=4)])
    for _ in range(4):
        builder.running_podgroup([0], ONE, priority=40)
    builder.uniform_podgroup(1, ONE, preemption_delay_until=100)
    (one,) = plan(builder.snapshot(), POLICIES).rejections
    assert one.reason == UnschedulableReason.PREEMPTION_DELAY
    text = rejection_message(builder.snapshot(), one)
    assert text.startswith(
        "Queue a has a limit of 4 GPU and uses 4 GPU; the PodGroup requests 1 GPU more. "
    )
    assert text.endswith("Z, when its preemption delay ends")


def test_free_resources_are_used_during_a_preemption_delay() -> None:
    """No pod is evicted for it then."""
    builder = Builder([SnapshotNode(gpu=8)], [SnapshotQueue("a"), SnapshotQueue("b", quota=8)])
    builder.running_podgroup([0] * 8, ONE, queue="a")
    builder.uniform_podgroup(7, ONE, queue="b")
    builder.uniform_podgroup(1, ONE, queue="b", preemption_delay_until=100)
    answer = plan(builder.snapshot(), POLICIES)
    assert {it.podgroup for it in answer.allocations} == {1, 2}


def test_a_podgroup_without_pods_left_is_no_victim() -> None:
    """It has no pods left to evict, so no PodGroup waits for its minimum runtime."""
    builder = Builder([SnapshotNode(gpu=1)], [SnapshotQueue("a", quota=-1)])
    builder.pod_on_node(0, builder.signature_row(ONE))
    podset = PodSet("default", 1, running=1, running_pods=(0,))
    builder.podgroup(SubGroupSet("", 0, (podset,)), priority=30, is_kept=True)
    builder.uniform_podgroup(1, ONE, priority=60)
    builder.uniform_podgroup(1, ONE, priority=40, preemption_delay_until=100)
    answer = plan(builder.snapshot(), POLICIES)
    assert sentences(answer) == "0→1"
    assert [it.reason for it in answer.rejections] == [UnschedulableReason.NO_CAPACITY]


def eviction_failure(**more: Any) -> Builder:
    """Return what is lent, three of it to PodGroups that keep it for one reason each."""
    builder = Builder(
        [SnapshotNode(gpu=4)],
        [SnapshotQueue("a", reclaim_min_runtime_s=100), SnapshotQueue("b", quota=4)],
    )
    builder.running_podgroup(
        [0], ONE, queue="a", non_evictable_reason="Kueue suspends and resumes the TrainJob"
    )
    builder.running_podgroup([0], ONE, queue="a", running_since=990)
    builder.running_podgroup([0], ONE, queue="a", running_since=980)
    builder.running_podgroup([0], ONE, queue="a")
    builder.uniform_podgroup(1, ONE, queue="b", **more)
    return builder


_ON_FREE_RESOURCES = ClusterEvent.RESOURCES_FREED | ClusterEvent.FOREIGN_POD_ASSIGNED
_BUDGETS = DisruptionBudgets(("ns/pdb",), (0,), ((0,),), (NONE, NONE, NONE, 0, NONE))
_KUEUE = "Kueue suspends and resumes the TrainJob"
_NON_EVICTABLE = f"1 PodGroup cannot be evicted because {_KUEUE}"
_FORBIDDEN = "non-preemptible pods are not evicted"
_YOUNG = (
    "2 PodGroups are within the minimum runtime; unit-2 can be evicted from 1970-01-01T00:18:00Z on"
)
_COVERED = "PodDisruptionBudget ns/pdb allows too few evictions"


def test_what_keeps_the_others_is_reported() -> None:
    """Each by its own reason; time and budgets retry the PodGroup."""
    snapshot = eviction_failure().snapshot(now=1000, budgets=_BUDGETS)
    assert sentence_of(snapshot, 4, KEEPS) == (
        "NoCapacity",
        f"{_NON_EVICTABLE}. {_YOUNG}. {_COVERED}",
    )
    (one,) = plan(snapshot, KEEPS).rejections
    assert one.retry_on == (
        _ON_FREE_RESOURCES | ClusterEvent.TIME_PASSED | ClusterEvent.BUDGET_CHANGED
    )


def test_a_preemption_delay_is_reported_beside_it() -> None:
    reason, text = sentence_of(eviction_failure(preemption_delay_until=1001).snapshot(now=1000), 4)
    assert reason == "PreemptionDelay"
    assert text.startswith(f"{_NON_EVICTABLE}. {_YOUNG}. No pod is evicted for it before ")


def test_a_budget_that_allows_one_of_two_evictions_is_reported() -> None:
    """It let too few go together."""
    builder = Builder([SnapshotNode(gpu=2)], [SnapshotQueue("a"), SnapshotQueue("b", quota=2)])
    builder.running_podgroup([0], ONE, queue="a")
    builder.running_podgroup([0], ONE, queue="a")
    builder.uniform_podgroup(2, ONE, queue="b")
    budgets = DisruptionBudgets(("ns/pdb",), (1,), ((0,),), (0, 0, NONE, NONE))
    snapshot = builder.snapshot(budgets=budgets)
    (one,) = plan(snapshot, KEEPS).rejections
    assert rejection_message(snapshot, one).endswith(f". {_COVERED}")


def test_a_podgroup_of_higher_priority_is_not_reported() -> None:
    """In preempt a PodGroup that matters more stays for that, and no other reason is told."""
    builder = Builder([SnapshotNode(gpu=1)], [SnapshotQueue("a", quota=8)])
    builder.running_podgroup(
        [0], ONE, priority=60, non_evictable_reason="Kueue suspends and resumes the TrainJob"
    )
    builder.uniform_podgroup(1, ONE, priority=50)
    assert sentence_of(builder.snapshot(), 1)[1] == ""
    builder.podgroups[0] = replace(builder.podgroups[0], priority=40)
    assert sentence_of(builder.snapshot(), 1)[1] == _NON_EVICTABLE


def test_a_preemptor_has_no_failure() -> None:
    """PodGroups without pods are not counted as non-evictable."""
    snapshot = eviction_failure().snapshot(now=1000)
    assert sentences(plan(snapshot, POLICIES)) == "3→4"
    builder = Builder([SnapshotNode(gpu=1)], [SnapshotQueue("a"), SnapshotQueue("b", quota=1)])
    builder.running_podgroup([0], ONE, queue="a", is_preemptible=False, non_evictable_reason="x")
    for more in ({"non_evictable_reason": "x"}, {"is_preemptible": False}):
        builder.uniform_podgroup(1, ONE, queue="a", **more)
    builder.uniform_podgroup(1, ONE, queue="b")
    assert sentence_of(builder.snapshot(), 3)[1] == (
        f"1 PodGroup cannot be evicted because {_FORBIDDEN}"
    )


def test_non_preemptible_podgroups_are_reported() -> None:
    """Beside PodGroups with another reason; in preempt only those of lower priority."""
    for quota, podgroup, others in ((-1, 4, 2), (0, 5, 3)):
        builder = Builder(
            [SnapshotNode(gpu=4)], [SnapshotQueue("a", quota=quota), SnapshotQueue("b", quota=2)]
        )
        for priority in (40, 50, 60):
            builder.running_podgroup([0], ONE, queue="a", priority=priority, is_preemptible=False)
        builder.running_podgroup(
            [0], ONE, queue="a", non_evictable_reason="Kueue suspends and resumes the TrainJob"
        )
        builder.uniform_podgroup(1, ONE, queue="a", priority=60)
        builder.uniform_podgroup(1, ONE, queue="b")
        report = sentence_of(builder.snapshot(), podgroup)[1]
        assert report == (
            f"{1 + others} PodGroups cannot be evicted: 1 because {_KUEUE}; {others} because "
            f"{_FORBIDDEN}"
        )


def test_a_podgroup_that_is_relocated_is_reported() -> None:
    """Nothing of it is there but its reserved places."""
    builder = Builder([SnapshotNode(gpu=1)], [SnapshotQueue("a"), SnapshotQueue("b", quota=1)])
    reserved_place = ReservedPlace(0, builder.signature_row(ONE), ReservationCause.MOVE)
    podset = PodSet(
        "default",
        1,
        reserved_places=(reserved_place,),
        expected=1,
        expected_signature=reserved_place.signature,
    )
    builder.podgroup(podset, queue="a", non_evictable_reason="it is on its way", is_kept=True)
    builder.running_podgroup([0], ONE, queue="a", is_preemptible=False)
    builder.uniform_podgroup(1, ONE, queue="b")
    assert "1 because it is on its way" in sentence_of(builder.snapshot(), 2)[1]


def test_a_rate_limit_is_reported() -> None:
    """No victim is tried any more; before the limit is reached there is no message."""
    snapshot = lent().snapshot()
    (one,) = plan(snapshot, POLICIES, PlanLimits(evictable_gpus=0)).rejections
    assert rejection_message(snapshot, one).endswith(
        "Evictions are rate-limited: the limit of one minute is reached, so no pod is evicted for "
        "this PodGroup for now"
    )
    rest = plan(snapshot, POLICIES, PlanLimits(evictable_gpus=1)).rejections
    assert not [
        it for it in rest if "Evictions are rate-limited" in rejection_message(snapshot, it)
    ]


@pytest.mark.parametrize(
    ("quota", "priority", "is_named"),
    [(0, 50, False), (2, 50, True), (0, 60, True)],
    ids=["no claim", "a claim", "a larger priority"],
)
def test_a_rate_limit_is_not_reported_if_nothing_could_be_reclaimed(
    quota: int, priority: int, is_named: bool
) -> None:
    """It would not help to wait for that minute."""
    builder = Builder([SnapshotNode(gpu=2)], [SnapshotQueue("a"), SnapshotQueue("b", quota=quota)])
    builder.running_podgroup([0], ONE, queue="a")
    builder.running_podgroup([0], ONE, queue="b")
    builder.uniform_podgroup(1, ONE, queue="b", priority=priority)
    snapshot = builder.snapshot()
    plan_result = plan(snapshot, POLICIES, PlanLimits(evictable_gpus=0))
    (one,) = plan_result.rejections
    assert ("Evictions are rate-limited" in rejection_message(snapshot, one)) is is_named
    assert plan_result.stats.withheld == is_named


def beside(*, quota: int) -> Snapshot:
    """Return a node that A has whole, and B, which waits, below a queue with a goal."""
    queues = [SnapshotQueue("all", quota=2, is_quota_only=True), SnapshotQueue("a", "all")]
    builder = Builder([SnapshotNode(gpu=2)], [*queues, SnapshotQueue("b", "all", quota=quota)])
    for _ in range(2):
        builder.running_podgroup([0], ONE, queue="a")
    builder.uniform_podgroup(1, ONE, queue="b")
    return builder.snapshot()


def test_a_quota_only_goal_is_reported() -> None:
    """The queue above is named; what is owed to B it takes back all the same."""
    words = (
        "Below queue all nothing is reclaimed beyond quotas: the reclaim-goal of queue all is "
        "quota-only"
    )
    assert sentence_of(beside(quota=0), 2) == ("NoCapacity", words)
    assert sentences(plan(beside(quota=1), POLICIES)) == "1→2"


def test_a_goal_that_changes_nothing_is_not_reported() -> None:
    """No other queue is over its share, or B is within its quota, in vain."""
    queues = [SnapshotQueue("all", quota=4, is_quota_only=True), SnapshotQueue("a", "all", quota=2)]
    for quota in (0, 2):
        builder = Builder([SnapshotNode(gpu=2)], [*queues, SnapshotQueue("b", "all", quota=quota)])
        builder.running_podgroup([0, 0], ONE, queue="a")
        builder.uniform_podgroup(1, ONE, queue="b")
        assert "reclaim-goal" not in sentence_of(builder.snapshot(), 1)[1]


def test_an_unlimited_queue_is_reported() -> None:
    """It owes nothing back; one that has none of what is asked for is not named."""
    queues = [
        SnapshotQueue("a", quota=NONE),
        SnapshotQueue("idle", quota=NONE),
        SnapshotQueue("b", quota=2),
    ]
    builder = Builder([SnapshotNode(gpu=2)], queues)
    for _ in range(2):
        builder.running_podgroup([0], ONE, queue="a")
    builder.running_podgroup([0], signature(), queue="idle")
    builder.uniform_podgroup(1, ONE, queue="b")
    words = (
        "Queue a cannot be reclaimed from: its GPU quota is unlimited (-1). Lower "
        "spec.resources.gpu.quota of that queue, to 0 if it owns none"
    )
    assert sentence_of(builder.snapshot(), 3) == ("NoCapacity", words)


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_queue_that_is_unlimited_in_the_cpus_that_lack_is_reported(preemptible: bool) -> None:
    """Its pods without GPUs fill a GPU node: no GPU lacks, and no queue is over its share."""
    queues = [SnapshotQueue("a"), SnapshotQueue("b", quota=2)]
    builder = Builder([SnapshotNode(gpu=2, cpu=16)], queues)
    builder.running_podgroup([0], signature(cpu=15), queue="a", is_preemptible=preemptible)
    builder.uniform_podgroup(1, signature(gpu=1, cpu=4), queue="b")
    words = (
        "Queue a cannot be reclaimed from: its CPU quota is unlimited (-1). Lower "
        "spec.resources.cpu.quota of that queue, to 0 if it owns none"
    )
    reason, sentence = sentence_of(builder.snapshot(), 1)
    assert (reason, sentence.endswith(words)) == ("NoCapacity", True)


# the PodGroup that is ahead, which requests eight GPUs of a node -> why it cannot get them
FRONT: list[Case[dict[str, Any], str]] = [
    Case(
        "a quota",
        {"is_preemptible": False},
        "a quota of its queues does not allow it",
    ),
    Case("due four", {}, "its queue would exceed its fair share"),
]


@pytest.mark.parametrize("case", FRONT, ids=ids)
def test_an_ineligible_earlier_podgroup_is_reported(case: Case[dict[str, Any], str]) -> None:
    """On the PodGroup behind it, which may wait without end."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a", quota=4), SnapshotQueue("b", quota=4)])
    for queue in ("a", "a", "a", "b"):
        builder.running_podgroup([0, 0], ONE, queue=queue)
    builder.uniform_podgroup(1, signature(gpu=8), queue="b", **case.given)
    builder.uniform_podgroup(1, signature(gpu=2), queue="b")
    text = sentence_of(builder.snapshot(), 5)[1]
    assert text == (
        "unit-4, which requests 1 CPU, 1 GiB memory, 8 GPU, is ahead of it for resources that can "
        f"be reclaimed, and cannot get them: {case.want}. It is next when that PodGroup starts, "
        "requests less or is deleted"
    )


def test_what_only_the_pods_of_others_forbid_is_no_lack_of_room() -> None:
    """Another pod uses its port: without other pods it would have that, and all GPUs."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a", quota=4), SnapshotQueue("b", quota=4)])
    for queue in ("a", "a", "a", "b"):
        builder.running_podgroup([0, 0], ONE, queue=queue)
    builder.uniform_podgroup(
        1, signature(gpu=8, host_ports=(0,), conflicting_ports=(0,)), queue="b"
    )
    builder.uniform_podgroup(1, signature(gpu=2), queue="b")
    snapshot = builder.snapshot()
    ports = snapshot.nodes.ports.copy()
    ports[0, 0] = 1
    snapshot = replace(snapshot, nodes=replace(snapshot.nodes, ports=ports))
    assert sentence_of(snapshot, 5)[1].endswith(
        "which requests 1 CPU, 1 GiB memory, 8 GPU, is ahead of it for resources that can be "
        "reclaimed"
    )
