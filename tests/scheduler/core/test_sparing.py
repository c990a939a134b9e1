"""Whoever can be spared is, without asking for each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.decision import Plan
from scheduler.core.model import Neighbours, Term
from scheduler.core.plan import plan
from scheduler.core.search import choose
from scheduler.policies.registry import Choice
from scheduler.policies.registry import choose as policies_of
from tests.scheduler.core.test_search import One, Town
from tests.support.size import examples
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

MANY = st.lists(
    st.builds(One, st.just(0), st.dictionaries(st.integers(0, 2), st.integers(1, 3), max_size=2)),
    min_size=9,
    max_size=40,
)


def one_by_one(town: Town) -> tuple[int, ...] | None:
    """Take in order until there is room; spare whoever can be, the last ones first."""
    taken: list[int] = []
    for rank in range(len(town.people)):
        town.take(rank)
        taken.append(rank)
        if town.has_room():
            break
    else:
        return None
    for rank in reversed(taken[:-1]):
        town.spare(rank)
        if town.has_room():
            taken.remove(rank)
        else:
            town.take(rank)
    return tuple(taken)


@given(MANY, st.integers(1, 6), st.integers(1, 5))
@settings(max_examples=examples(100))
def test_it_leaves_whom_sparing_one_by_one_leaves(people: list[One], seats: int, size: int) -> None:
    """Everybody may go; no set is looked at by itself."""
    towns = [Town(people, [1000, 0], seats, size) for _ in range(2)]
    assert choose(len(people), towns[0], 0).ranks == one_by_one(towns[1])


def racks(count: int) -> Plan:
    """Plan for a gang of three that wants three whole nodes, on nodes taken GPU by GPU."""
    nodes = [Node(gpu=8, labels=(i,)) for i in range(count)]
    builder = Builder(nodes, [Queue("a"), Queue("b", quota=8 * count)])
    for i in range(8 * count):
        builder.runs([i % count], shape(gpu=1), queue="a")
    builder.gang(3, shape(gpu=8, matches=(0,), apart=(0,), shunned=(0,)), queue="b")
    none = np.zeros((1, count), dtype=np.int32)
    apart = Neighbours(none, (Term(0, 0),), none.copy(), (), ())
    snapshot = builder.snapshot(neighbours=apart)
    answer = plan(snapshot, policies_of(Choice()))
    assert not [*violations(snapshot, answer)]
    return answer


@pytest.mark.parametrize(("nodes", "trials"), [(60, 66), (100, 70)])
def test_pods_are_placed_on_trial_a_few_times(nodes: int, trials: int) -> None:
    """Of 480 candidates 24 go; one by one it were 402 trials, and of 800 more than there may be."""
    answer = racks(nodes)
    assert sum(len(one.pods) for one in answer.evictions) == 24
    assert answer.stats.trials == trials
