"""How many pods may go at once (rule 36b)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Plan, Policies
from scheduler.core.model.snapshot import DisruptionBudgets, Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

KEEPS = build_policies(PolicySelection(disruption_budgets="always"))
BEST_EFFORT = build_policies(PolicySelection())
ONE = signature(gpu=1)
ALL_FOUR: Mapping[int, Sequence[int]] = {pod: [0] for pod in range(4)}


def covered(
    builder: Builder,
    allowed: Sequence[int],
    pods: Mapping[int, Sequence[int]],
    policies: Policies = KEEPS,
) -> Plan:
    sets = sorted({tuple(of) for of in pods.values()})
    bare = builder.snapshot()
    rows = [
        sets.index(tuple(pods[i])) if i in pods else NONE for i in range(len(bare.pods.podgroup))
    ]
    names = tuple(f"ns/budget-{i}" for i in range(len(allowed)))
    snapshot = builder.snapshot(
        budgets=DisruptionBudgets(names, tuple(allowed), tuple(sets), tuple(rows))
    )
    answer = plan(snapshot, policies)
    assert [*plan_violations(snapshot, answer)] == []
    return answer


def described(answer: Plan) -> str:
    """Return which PodGroup loses how many pods, and to which."""
    return " ".join(
        f"{','.join(map(str, it.podgroups))}:{len(it.pods)}→{it.preemptor}"
        for it in answer.evictions
    )


def lent(*waiting: int, count: int = 4) -> Builder:
    """Return what A has of B, pod by pod; of B gangs of these sizes wait."""
    builder = Builder(
        [SnapshotNode(gpu=count)], [SnapshotQueue("a"), SnapshotQueue("b", quota=count)]
    )
    for _ in range(count):
        builder.running_podgroup([0], ONE, queue="a")
    for number in waiting:
        builder.uniform_podgroup(number, ONE, queue="b")
    return builder


# gangs that wait, what budgets allow, which of four pods they cover -> victims
TAKEN: list[Case[tuple[list[int], list[int], Mapping[int, Sequence[int]]], str]] = [
    Case("no pod is covered", ([1], [0], {}), "3:1→4"),
    Case("a covered pod is not evicted", ([1], [0], {3: [0], 2: [0]}), "1:1→4"),
    Case("as many as may", ([2], [1], {3: [0], 2: [0]}), "3:1→4 1:1→4"),
    Case("too few may", ([2], [1], ALL_FOUR), ""),
    Case("jointly for all claims", ([1, 1], [1], ALL_FOUR), "3:1→4"),
    Case("by each budget that covers it", ([1], [9, 0], {3: [0, 1], 2: [0]}), "2:1→4"),
    Case("each for itself", ([2], [1, 1], {3: [0], 2: [1]}), "3:1→4 2:1→4"),
]


@pytest.mark.parametrize("case", TAKEN, ids=ids)
def test_which_pods_may_be_evicted(
    case: Case[tuple[list[int], list[int], Mapping[int, Sequence[int]]], str],
) -> None:
    """The others go instead, if that is enough."""
    waiting, allowed, pods = case.given
    assert described(covered(lent(*waiting), allowed, pods)) == case.want


@pytest.mark.parametrize(("allowed", "want"), [(4, "0,1:4→2"), (3, "")])
def test_a_jobset_counts_whole(allowed: int, want: str) -> None:
    """A TrainJob is suspended, and all of its pods go at once."""
    builder = Builder([SnapshotNode(gpu=4)], [SnapshotQueue("a"), SnapshotQueue("b", quota=4)])
    builder.running_podgroup([0] * 2, ONE, queue="a", workload="j")
    builder.running_podgroup([0] * 2, ONE, queue="a", workload="j")
    builder.uniform_podgroup(1, ONE, queue="b")
    assert described(covered(builder, [allowed], ALL_FOUR)) == want


@pytest.mark.parametrize(("allowed", "want"), [(1, "0:1→1"), (2, "0:1→1 0:1→1"), (0, "")])
def test_step_by_step(allowed: int, want: str) -> None:
    """Elastic pods of a PodGroup; its last eviction unit has them as well, and they count once."""
    builder = Builder([SnapshotNode(gpu=4)], [SnapshotQueue("a"), SnapshotQueue("b", quota=4)])
    builder.running_podgroup([0] * 4, ONE, queue="a", minimum=1)
    builder.uniform_podgroup(max(allowed, 1), ONE, queue="b")
    assert described(covered(builder, [allowed], ALL_FOUR)) == want


# gangs that wait, what budgets allow, which of four pods they cover -> victims, exceeded budgets
LENT: list[Case[tuple[list[int], list[int], Mapping[int, Sequence[int]]], str]] = [
    Case("what no budget covers goes first", ([1], [0], {3: [0], 2: [0]}), "1:1→4"),
    Case("then what one keeps", ([3], [0], {3: [0], 2: [0]}), "1:1→4 0:1→4 3:1→4!0"),
    Case("more together than may", ([2], [1], ALL_FOUR), "3:1→4 2:1→4!0"),
    Case("jointly for all claims", ([1, 1], [1], ALL_FOUR), "3:1→4 2:1→5!0"),
    Case("by each budget that covers it", ([4], [9, 0], {3: [0, 1]}), "2:1→4 1:1→4 0:1→4 3:1→4!1"),
    Case("not in its own queue", ([], [0], ALL_FOUR), ""),
]


@pytest.mark.parametrize("case", LENT, ids=ids)
def test_what_is_lent_comes_back(
    case: Case[tuple[list[int], list[int], Mapping[int, Sequence[int]]], str],
) -> None:
    """A budget keeps what can be kept, and names itself where it cannot."""
    waiting, allowed, pods = case.given
    builder = lent(*waiting)
    if not waiting:
        builder.uniform_podgroup(1, ONE, queue="a", priority=60)
    answer = covered(builder, allowed, pods, BEST_EFFORT)
    past = ["!" + ",".join(map(str, it.budgets)) if it.budgets else "" for it in answer.evictions]
    found = zip(described(answer).split(), past, strict=True)
    assert " ".join(one + more for one, more in found) == case.want


def test_a_violation_of_a_budget_is_reported() -> None:
    snapshot: Snapshot = lent(1).snapshot()
    answer = plan(snapshot, BEST_EFFORT)
    strict = replace(snapshot, budgets=DisruptionBudgets(("ns/b",), (0,), ((0,),), (0,) * 5))
    assert [*plan_violations(strict, answer)] == ["1 pods of ns/b go, not 0"]
