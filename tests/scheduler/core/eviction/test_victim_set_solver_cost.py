"""Each victim that can be spared is, without asking for each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.eviction.victim_set_solver import solve
from scheduler.core.model.podgroup import AffinityTerm
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import PodRelations
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection
from scheduler.policies.registry import build_policies as policies_of
from tests.scheduler.core.eviction.fake_scenario import Candidate, FakeScenario
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

MANY = st.lists(
    st.builds(
        Candidate, st.just(0), st.dictionaries(st.integers(0, 2), st.integers(1, 3), max_size=2)
    ),
    min_size=9,
    max_size=40,
)


def one_by_one(scenario: FakeScenario) -> tuple[int, ...] | None:
    """Take in order until there is room; spare what can be spared, the last ones first."""
    taken: list[int] = []
    for rank in range(len(scenario.candidates)):
        scenario.evict(rank)
        taken.append(rank)
        if scenario.fits():
            break
    else:
        return None
    for rank in reversed(taken[:-1]):
        scenario.restore(rank)
        if scenario.fits():
            taken.remove(rank)
        else:
            scenario.evict(rank)
    return tuple(taken)


@given(MANY, st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=examples(100))
def test_it_leaves_what_sparing_one_by_one_leaves(
    candidates: list[Candidate], seats: int, size: int
) -> None:
    """All may be evicted; no set is checked by itself."""
    scenarios = [FakeScenario(candidates, [1000, 0], seats, size) for _ in range(2)]
    first, other = scenarios
    assert solve(len(candidates), first, first.fits, 0).ranks == one_by_one(other)


def racks(count: int) -> Plan:
    """Plan for a gang of three that wants three whole nodes, on nodes taken GPU by GPU."""
    nodes = [SnapshotNode(gpu=8, labels=(i,)) for i in range(count)]
    builder = Builder(nodes, [SnapshotQueue("a"), SnapshotQueue("b", quota=8 * count)])
    for i in range(8 * count):
        builder.running_podgroup([i % count], signature(gpu=1), queue="a")
    builder.uniform_podgroup(
        3,
        signature(gpu=8, matched_selectors=(0,), anti_affinity=(0,), existing_anti_affinity=(0,)),
        queue="b",
    )
    none = np.zeros((1, count), dtype=np.int32)
    apart = PodRelations(none, (AffinityTerm(0, 0),), none.copy(), (), ())
    snapshot = builder.snapshot(pod_relations=apart)
    answer = plan(snapshot, policies_of(PolicySelection()))
    assert not [*plan_violations(snapshot, answer)]
    return answer


@pytest.mark.parametrize(("nodes", "trials"), [(60, 66), (100, 70)])
def test_pods_are_placed_on_trial_a_few_times(nodes: int, trials: int) -> None:
    """Of 480 candidates 24 go; one by one it were 402 trials, and of 800 more than there may be."""
    answer = racks(nodes)
    assert sum(len(one.pods) for one in answer.evictions) == 24
    assert answer.stats.trials == trials
