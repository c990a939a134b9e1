"""What is taken is written down, and is taken back exactly."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.node_resources import has_enough
from scheduler.core.nodes.working_nodes import WorkingNodes
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from tests.support.snapshot.random_snapshots import no_pod_affinity
from tests.support.snapshot.statement_state import statement_state, working_nodes

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


def fits_room(nodes: WorkingNodes, node: int, one: int) -> bool:
    """Say whether a pod fits into what is idle or being released."""
    return has_enough(nodes.resources.free[node].tolist(), nodes.resources.requests(one))


def gpus(nodes: WorkingNodes) -> list[list[int]]:
    return [
        (nodes.resources.idle[:, GPU] // 1000).tolist(),
        (nodes.resources.free[:, GPU] // 1000).tolist(),
    ]


def _waits_after_all(nodes: WorkingNodes) -> None:
    nodes.statement.allocate(0, PLAIN, on_idle=True)
    nodes.statement.pipeline(0, PLAIN)


# what is done -> GPUs of two nodes: idle, and with what is being released
CHANGES: list[Case[Callable[[WorkingNodes], None], list[list[int]]]] = [
    Case("nothing", lambda _: None, [[4, 1], [4, 2]]),
    Case(
        "what is idle is taken",
        lambda it: it.statement.allocate(0, PLAIN, on_idle=True),
        [[3, 1], [3, 2]],
    ),
    Case(
        "a nominated pod takes nothing idle",
        lambda it: it.statement.allocate(1, PLAIN, on_idle=False),
        [[4, 1], [4, 1]],
    ),
    Case(
        "an evicted pod releases its resources",
        lambda it: it.statement.deallocate(1, PLAIN),
        [[4, 2], [4, 3]],
    ),
    Case(
        "a bind turned into a nomination releases what is idle only",
        _waits_after_all,
        [[4, 1], [3, 2]],
    ),
    Case(
        "more is waited for than is being released",
        lambda it: it.statement.allocate(1, LARGE, on_idle=False),
        [[4, 1], [4, -2]],
    ),
]


@pytest.mark.parametrize("case", CHANGES, ids=ids)
def test_a_change(case: Case[Callable[[WorkingNodes], None], list[list[int]]]) -> None:
    """Idle room and room that can be waited for; taking it back leaves no trace."""
    nodes = working_nodes(snapshot())
    before = statement_state(nodes)
    case.given(nodes)
    assert gpus(nodes) == case.want
    nodes.statement.roll_back(0)
    assert statement_state(nodes) == before


def test_every_resource_is_taken() -> None:
    nodes = working_nodes(snapshot())
    nodes.statement.allocate(0, PLAIN, on_idle=True)
    whole = nodes.snapshot.nodes.idle[0]
    assert (whole - nodes.resources.idle[0]).tolist() == list(SIGNATURES[PLAIN].request)


def test_neighbours_are_counted() -> None:
    """Which pods are where, which keep away from which, ports."""
    nodes = working_nodes(snapshot())
    nodes.statement.allocate(1, SOCIAL, on_idle=True)
    nodes.statement.allocate(1, SOCIAL, on_idle=False)
    nodes.statement.allocate(0, PLAIN, on_idle=True)
    assert nodes.relations.selector_counts.tolist() == [[0, 2]]
    assert nodes.relations.anti_affinity_counts.tolist() == [[0, 2]]
    assert nodes.relations.ports.sum(axis=0).tolist() == [0, 0, 2, 0, 0, 2, 0, 0]
    assert nodes.relations.change_count == 2


def test_claims_are_in_use_where_their_pods_are() -> None:
    """A claim is free when its last pod is gone."""
    nodes = working_nodes(snapshot())
    nodes.statement.allocate(1, CLAIMS, on_idle=True)
    nodes.statement.allocate(0, OWN, on_idle=True)
    assert (nodes.relations.claim_node, nodes.relations.claim_users) == ([1, 0], [2, 1])
    nodes.statement.deallocate(1, CLAIMS)
    nodes.statement.deallocate(0, OWN)
    assert (nodes.relations.claim_node, nodes.relations.claim_users) == ([1, NONE], [1, 0])
    nodes.statement.deallocate(1, CLAIMS)
    assert (nodes.relations.claim_node, nodes.relations.claim_users) == ([NONE, NONE], [0, 0])


def test_moves_tell_which_nodes_changed() -> None:
    """Also when something is taken back."""
    nodes = working_nodes(snapshot())
    nodes.statement.allocate(1, PLAIN, on_idle=True)
    middle = nodes.statement.checkpoint
    nodes.statement.allocate(0, PLAIN, on_idle=True)
    nodes.statement.roll_back(middle)
    assert nodes.statement.changed_nodes == [1, 0, 0]
    assert nodes.relations.change_count == 0


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
    nodes = working_nodes(snapshot())
    assert (nodes.resources.fits_idle(node, one), fits_room(nodes, node, one)) == fits


def test_an_exact_fit_is_one_and_what_is_not_asked_for_is_not_looked_at() -> None:
    """Four GPUs and no CPU fit where four GPUs are left and CPU is overcommitted."""
    build = Builder(nodes=[SnapshotNode(gpu=8, used_gpu=4, cpu=2, used_cpu=3)])
    nodes = working_nodes(_of(build, signature(gpu=4, cpu=0), signature(gpu=4, cpu=1)))
    assert (nodes.resources.fits_idle(0, 0), fits_room(nodes, 0, 0)) == (True, True)
    assert (nodes.resources.fits_idle(0, 1), fits_room(nodes, 0, 1)) == (False, False)


def test_a_wait_fits_only_into_the_room() -> None:
    build = Builder(nodes=[SnapshotNode(gpu=2, used_gpu=1, releasing_gpu=1)])
    nodes = working_nodes(_of(build, signature(gpu=1)))
    assert (nodes.resources.fits_idle(0, 0), fits_room(nodes, 0, 0)) == (False, True)


def _of(build: Builder, *signatures: Any) -> Snapshot:
    for one in signatures:
        build.signature_row(one)
    return build.snapshot()


def test_a_snapshot_stays_as_it_is() -> None:
    """The nodes works on its own copy, and a snapshot cannot be written to."""
    given_ = snapshot()
    before = statement_state(working_nodes(given_))
    nodes = working_nodes(given_)
    for one in (PLAIN, SOCIAL, OWN):
        nodes.statement.allocate(0, one, on_idle=True)
    assert statement_state(working_nodes(given_)) == before
    with pytest.raises(ValueError, match="read-only"):
        given_.nodes.idle[0, 0] = 1


def _does(nodes: WorkingNodes, there: list[tuple[int, int]], act: tuple[str, int, int]) -> None:
    """Take, give back or postpone a pod, if that can happen."""
    kind, node, one = act
    form = SIGNATURES[one]
    if kind != "take":
        if there:
            node, one = there.pop(node % len(there))
            (nodes.statement.deallocate if kind == "give" else nodes.statement.pipeline)(node, one)
        return
    if any(
        nodes.relations.claim_node[reclaimer] not in {NONE, node} for reclaimer in form.rwo_claims
    ):
        return
    if any(nodes.relations.claim_users[reclaimer] for reclaimer in form.rwop_claims):
        return
    on_idle = bool((node + one) % 3)
    nodes.statement.allocate(node, one, on_idle=on_idle)
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
    nodes = working_nodes(snapshot())
    there: list[tuple[int, int]] = []
    for act in first:
        _does(nodes, there, act)
    checkpoint, before = nodes.statement.checkpoint, statement_state(nodes)
    for act in then:
        _does(nodes, there, act)
    nodes.statement.roll_back(checkpoint)
    assert statement_state(nodes) == before
    nodes.statement.roll_back(0)
    assert statement_state(nodes) == statement_state(working_nodes(snapshot()))
