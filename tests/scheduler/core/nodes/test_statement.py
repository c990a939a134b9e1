"""What is taken is written down, and is taken back exactly."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.statement import Statement, has_enough
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from tests.support.snapshot.random_snapshots import no_pod_affinity
from tests.support.snapshot.statement_state import statement_state

GPU: Final = 3  # the column
PLAIN, LARGE, SOCIAL, CLAIMS, OWN = range(5)
SIGNATURES: Final = (
    signature(gpu=1),
    signature(gpu=4, cpu=0),
    signature(
        gpu=1, matched_selectors=(0,), anti_affinity=(0,), host_ports=(2, 5), conflicting_ports=(2,)
    ),
    signature(cpu=1, rwo_claims=(0,)),
    signature(cpu=1, rwop_claims=(1,)),
)


def snapshot() -> Snapshot:
    """Return two nodes; on the second one a GPU is being released, and claim 0 is in use."""
    build = Builder(nodes=[SnapshotNode(gpu=4), SnapshotNode(gpu=4, used_gpu=2, releasing_gpu=1)])
    for one in SIGNATURES:
        build.signature_row(one)
    return build.snapshot(
        pod_relations=no_pod_affinity(2, claim_node=(1, NONE), claim_users=(1, 0))
    )


def fits_room(statement: Statement, node: int, one: int) -> bool:
    """Say whether a pod fits into what is idle or being released."""
    return has_enough(statement.free[node].tolist(), statement.requests(one))


def gpus(statement: Statement) -> list[list[int]]:
    return [(statement.idle[:, GPU] // 1000).tolist(), (statement.free[:, GPU] // 1000).tolist()]


def _waits_after_all(statement: Statement) -> None:
    statement.allocate(0, PLAIN, on_idle=True)
    statement.pipeline(0, PLAIN)


# what is done -> GPUs of two nodes: idle, and with what is being released
CHANGES: list[Case[Callable[[Statement], None], list[list[int]]]] = [
    Case("nothing", lambda _: None, [[4, 1], [4, 2]]),
    Case("what is idle is taken", lambda it: it.allocate(0, PLAIN, on_idle=True), [[3, 1], [3, 2]]),
    Case(
        "a nominated pod takes nothing idle",
        lambda it: it.allocate(1, PLAIN, on_idle=False),
        [[4, 1], [4, 1]],
    ),
    Case(
        "an evicted pod releases its resources",
        lambda it: it.deallocate(1, PLAIN),
        [[4, 2], [4, 3]],
    ),
    Case(
        "a bind turned into a nomination releases what is idle only",
        _waits_after_all,
        [[4, 1], [3, 2]],
    ),
    Case(
        "more is waited for than is being released",
        lambda it: it.allocate(1, LARGE, on_idle=False),
        [[4, 1], [4, -2]],
    ),
]


@pytest.mark.parametrize("case", CHANGES, ids=ids)
def test_a_change(case: Case[Callable[[Statement], None], list[list[int]]]) -> None:
    """Idle room and room that can be waited for; taking it back leaves no trace."""
    statement = Statement(snapshot())
    before = statement_state(statement)
    case.given(statement)
    assert gpus(statement) == case.want
    statement.roll_back(0)
    assert statement_state(statement) == before


def test_every_resource_is_taken() -> None:
    statement = Statement(snapshot())
    statement.allocate(0, PLAIN, on_idle=True)
    whole = statement.snapshot.nodes.idle[0]
    assert (whole - statement.idle[0]).tolist() == list(SIGNATURES[PLAIN].request)


def test_neighbours_are_counted() -> None:
    """Which pods are where, which keep away from which, ports."""
    statement = Statement(snapshot())
    statement.allocate(1, SOCIAL, on_idle=True)
    statement.allocate(1, SOCIAL, on_idle=False)
    statement.allocate(0, PLAIN, on_idle=True)
    assert statement.selector_counts.tolist() == [[0, 2]]
    assert statement.anti_affinity_counts.tolist() == [[0, 2]]
    assert statement.ports.sum(axis=0).tolist() == [0, 0, 2, 0, 0, 2, 0, 0]
    assert statement.relation_changes == 2


def test_claims_are_in_use_where_their_pods_are() -> None:
    """A claim is free when its last pod is gone."""
    statement = Statement(snapshot())
    statement.allocate(1, CLAIMS, on_idle=True)
    statement.allocate(0, OWN, on_idle=True)
    assert (statement.claim_node, statement.claim_users) == ([1, 0], [2, 1])
    statement.deallocate(1, CLAIMS)
    statement.deallocate(0, OWN)
    assert (statement.claim_node, statement.claim_users) == ([1, NONE], [1, 0])
    statement.deallocate(1, CLAIMS)
    assert (statement.claim_node, statement.claim_users) == ([NONE, NONE], [0, 0])


def test_moves_tell_which_nodes_changed() -> None:
    """Also when something is taken back."""
    statement = Statement(snapshot())
    statement.allocate(1, PLAIN, on_idle=True)
    middle = statement.checkpoint
    statement.allocate(0, PLAIN, on_idle=True)
    statement.roll_back(middle)
    assert statement.changed_nodes == [1, 0, 0]
    assert statement.relation_changes == 0


@pytest.mark.parametrize(
    ("node", "one", "fits"),
    [
        (0, PLAIN, (True, True)),
        (1, LARGE, (False, False)),
        (0, LARGE, (True, True)),
        (1, PLAIN, (True, True)),
    ],
)
def test_what_fits(node: int, one: int, fits: tuple[bool, bool]) -> None:
    statement = Statement(snapshot())
    assert (statement.fits_idle(node, one), fits_room(statement, node, one)) == fits


def test_an_exact_fit_is_one_and_what_is_not_asked_for_is_not_looked_at() -> None:
    """Four GPUs and no CPU fit where four GPUs are left and CPU is overcommitted."""
    build = Builder(nodes=[SnapshotNode(gpu=8, used_gpu=4, cpu=2, used_cpu=3)])
    statement = Statement(_of(build, signature(gpu=4, cpu=0), signature(gpu=4, cpu=1)))
    assert (statement.fits_idle(0, 0), fits_room(statement, 0, 0)) == (True, True)
    assert (statement.fits_idle(0, 1), fits_room(statement, 0, 1)) == (False, False)


def test_a_wait_fits_only_into_the_room() -> None:
    build = Builder(nodes=[SnapshotNode(gpu=2, used_gpu=1, releasing_gpu=1)])
    statement = Statement(_of(build, signature(gpu=1)))
    assert (statement.fits_idle(0, 0), fits_room(statement, 0, 0)) == (False, True)


def _of(build: Builder, *signatures: Any) -> Snapshot:
    for one in signatures:
        build.signature_row(one)
    return build.snapshot()


def test_a_snapshot_stays_as_it_is() -> None:
    """The statement works on its own copy, and a snapshot cannot be written to."""
    given_ = snapshot()
    before = statement_state(Statement(given_))
    statement = Statement(given_)
    for one in (PLAIN, SOCIAL, OWN):
        statement.allocate(0, one, on_idle=True)
    assert statement_state(Statement(given_)) == before
    with pytest.raises(ValueError, match="read-only"):
        given_.nodes.idle[0, 0] = 1


def _does(statement: Statement, there: list[tuple[int, int]], act: tuple[str, int, int]) -> None:
    """Take, give back or postpone a pod, if that can happen."""
    kind, node, one = act
    form = SIGNATURES[one]
    if kind != "take":
        if there:
            node, one = there.pop(node % len(there))
            (statement.deallocate if kind == "give" else statement.pipeline)(node, one)
        return
    if any(statement.claim_node[reclaimer] not in {NONE, node} for reclaimer in form.rwo_claims):
        return
    if any(statement.claim_users[reclaimer] for reclaimer in form.rwop_claims):
        return
    on_idle = bool((node + one) % 3)
    statement.allocate(node, one, on_idle=on_idle)
    if on_idle:
        there.append((node, one))


_acts = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "give", "postpone"]), st.integers(0, 1), st.integers(0, 4)
    ),
    max_size=12,
)


@settings(max_examples=examples(100))
@given(_acts, _acts)
def test_rolling_back_is_exact(first: list[Any], then: list[Any]) -> None:
    """Bit for bit, from wherever to any earlier point."""
    statement = Statement(snapshot())
    there: list[tuple[int, int]] = []
    for act in first:
        _does(statement, there, act)
    checkpoint, before = statement.checkpoint, statement_state(statement)
    for act in then:
        _does(statement, there, act)
    statement.roll_back(checkpoint)
    assert statement_state(statement) == before
    statement.roll_back(0)
    assert statement_state(statement) == statement_state(Statement(snapshot()))
