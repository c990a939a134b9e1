"""Which gangs move off nodes that leave the cluster: the action nodeleaving."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.actions.leave_nodes import next_departure_at
from scheduler.core.model.podgroup import Departure, PodSet, SubGroupSet
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import DisruptionBudgets, NodeFault
from scheduler.core.plan import PlanLimits, plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.scheduler_names import Action

POLICIES = build_policies(PolicySelection())
ONE, EIGHT = signature(gpu=1), signature(gpu=8)
LISTED = Departure("node node-0 leaves")
BEGUN = Departure("node node-0 is drained", begun_until=9)
NOW = 5


def cluster(*queues: SnapshotQueue) -> Builder:
    """Return a cluster of which the first node leaves."""
    nodes = [SnapshotNode(gpu=8, prefilter_fault=NodeFault.LEAVING), SnapshotNode(gpu=8)]
    return Builder(nodes, queues or (SnapshotQueue("a", quota=16),))


def gang(
    builder: Builder,
    nodes: tuple[int, ...] = (0, 1),
    *,
    minimum: int = 2,
    waiting: int = 0,
    departure: Departure | None = LISTED,
    **more: Any,
) -> Builder:
    """Add a PodGroup with pods on these nodes, and some that have no node."""
    more["departure"] = departure
    builder.running_podgroup(nodes, ONE, minimum=minimum, **more)
    podgroup = builder.podgroups.pop()
    assert isinstance(podgroup.tree, PodSet)
    pods = builder.waiting_pods(waiting, ONE)
    tree = replace(podgroup.tree, leaving=nodes.count(0), pending=pods)
    builder.podgroups.append(replace(podgroup, tree=tree, has_running=bool(nodes)))
    return builder


def workload() -> Builder:
    """Return a TrainJob with two PodGroups, one of which has pods on the node that leaves."""
    builder = cluster()
    builder.running_podgroup([1], ONE, workload="j")
    return gang(builder, workload="j")


def described(answer: Plan) -> str:
    return " ".join(
        f"{it.podgroups}:{len(it.pods)}"
        for it in answer.evictions
        if (it.action, it.preemptor, it.is_whole) == (Action.NODE_LEAVING, NONE, True)
    )


PLANS: list[Case[Builder, str]] = [
    Case("a gang that needs its pod there goes whole", gang(cluster()), "(0,):2"),
    Case("a gang elsewhere stays", gang(cluster(), (1, 1), departure=None), ""),
    Case("pods beyond the minimum leave alone", gang(cluster(), (0, 1, 1)), ""),
    Case("unless too few others are left", gang(cluster(), (0, 0, 1)), "(0,):3"),
    Case("a non-preemptible gang goes as well", gang(cluster(), is_preemptible=False), "(0,):2"),
    Case("a TrainJob goes with all of its PodGroups", workload(), "(0, 1):3"),
    Case("a pod of its own is no gang", gang(cluster(), (0,), minimum=1), ""),
    Case("one of a TrainJob is", gang(cluster(), (0,), minimum=1, workload="j"), "(0,):1"),
    Case("not if it cannot be suspended", gang(cluster(), non_evictable_reason="Kueue"), ""),
    Case("not if some of it has succeeded", gang(cluster(), is_partly_succeeded=True), ""),
    Case("not again at once", gang(cluster(), departure=LISTED._replace(not_before=6)), ""),
    Case("but later", gang(cluster(), departure=LISTED._replace(not_before=NOW)), "(0,):2"),
    Case(
        "after a needed pod was evicted the others go",
        gang(cluster(), (1,), departure=BEGUN, waiting=1),
        "(0,):1",
    ),
    Case(
        "also soon after it was moved before",
        gang(cluster(), (1,), departure=BEGUN._replace(not_before=99)),
        "(0,):1",
    ),
    Case("not if it was not needed", gang(cluster(), (1, 1), departure=BEGUN), ""),
    Case("nor long after", gang(cluster(), (1,), departure=BEGUN._replace(begun_until=4)), ""),
    Case(
        "a TrainJob of which all pods were evicted is suspended",
        gang(cluster(), (), minimum=1, departure=BEGUN, waiting=1, workload="j"),
        "(0,):0",
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_which_podgroups_move(case: Case[Builder, str]) -> None:
    snapshot = replace(case.given.snapshot(), now=NOW)

    answer = plan(snapshot, POLICIES)

    assert described(answer) == case.want
    assert list(plan_violations(snapshot, answer)) == []


def test_a_sub_group_that_is_not_needed_leaves_alone() -> None:
    """Of a tree the whole decides: one of the two sub-groups is enough."""
    builder = cluster()
    builder.running_podgroup([0, 1], ONE, departure=LISTED)
    podgroup = builder.podgroups.pop()
    stays = PodSet("a", 1, running=1, running_pods=(1,))
    leaves = PodSet("b", 1, running=1, running_pods=(0,), leaving=1)

    moved = []
    for minimum in (1, 2):
        tree = SubGroupSet("", minimum, (stays, leaves))
        builder.podgroups = [replace(podgroup, tree=tree)]
        moved.append(described(plan(builder.snapshot(), POLICIES)))

    assert moved == ["", "(0,):2"]


def test_what_replaces_an_evicted_pod_is_not_placed_first() -> None:
    """Else the gang would be torn apart again by the eviction of the next pod."""
    snapshot = gang(cluster(), (1,), departure=BEGUN, waiting=1).snapshot()

    answer = plan(snapshot, POLICIES)

    assert not answer.allocations


def test_no_other_action_evicts_it_too() -> None:
    """A reclaimer sees its room in the next plan."""
    builder = gang(cluster(SnapshotQueue("a"), SnapshotQueue("b", quota=8)), queue="a")
    builder.uniform_podgroup(1, EIGHT, queue="b")

    answer = plan(builder.snapshot(), POLICIES)

    assert [it.action for it in answer.evictions] == [Action.NODE_LEAVING]


@pytest.mark.parametrize(("departure", "want"), [(LISTED, ""), (BEGUN, "(0,):1")])
def test_a_budget_holds_until_a_needed_pod_was_evicted(departure: Departure, want: str) -> None:
    builder = gang(cluster(), (0, 1) if departure is LISTED else (1,), departure=departure)
    pods = 2 if departure is LISTED else 1
    budgets = DisruptionBudgets(("ns/b",), (0,), ((0,),), (0,) * pods)

    assert described(plan(builder.snapshot(budgets=budgets), POLICIES)) == want


def test_the_limit_of_evicted_gpus_is_for_others() -> None:
    """The pods go in any case; what is left of the limit is for reclaimers."""
    builder = gang(cluster(SnapshotQueue("a"), SnapshotQueue("b", quota=8)), queue="a")
    builder.running_podgroup([1] * 6, ONE, queue="a")
    builder.uniform_podgroup(1, signature(gpu=2), queue="b")

    answer = plan(builder.snapshot(), POLICIES, PlanLimits(evictable_gpus=1000))

    assert [it.action for it in answer.evictions] == [Action.NODE_LEAVING, Action.RECLAIM]


@pytest.mark.parametrize(
    ("departure", "want"), [(LISTED._replace(is_notice=False), "(0,):2"), (LISTED, "(0,):2 (1,):2")]
)
def test_conditions_move_no_more_gangs_than_the_limit_allows(
    departure: Departure, want: str
) -> None:
    """What reports them may be wrong about all nodes; a notice is not, and does not count."""
    snapshot = gang(gang(cluster(), departure=departure), departure=departure).snapshot()

    answer = plan(snapshot, POLICIES, PlanLimits(evictable_gpus=2000))

    assert described(answer) == want
    assert [it.limited_gpus for it in answer.evictions] == ([2000] if " " not in want else [0, 0])


def test_when_a_podgroup_may_be_moved_again() -> None:
    builder = gang(gang(cluster(), departure=LISTED._replace(not_before=7)), departure=None)

    at = [next_departure_at(replace(builder.snapshot(), now=now)) for now in (6, 7)]

    assert at == [7, 17]  # a budget may be in the way
    assert next_departure_at(gang(cluster(), departure=None).snapshot()) is None


@pytest.mark.parametrize("nodes", [(0,), (0, 1)])
def test_pods_that_leave_alone_need_no_more_plans(nodes: tuple[int, ...]) -> None:
    """They may run for days on a node with a condition: no plan moves them."""
    assert next_departure_at(gang(cluster(), nodes, minimum=1).snapshot()) is None
