"""What is taken is written down, and is taken back exactly."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.ledger import Ledger, holds
from scheduler.core.model import NONE, Snapshot
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshots import Builder, Node, shape
from tests.support.snapshotted import neighbours

GPU: Final = 3  # the column
PLAIN, LARGE, SOCIAL, CLAIMS, OWN = range(5)
SHAPES: Final = (
    shape(gpu=1),
    shape(gpu=4, cpu=0),
    shape(gpu=1, matches=(0,), apart=(0,), takes=(2, 5), avoids=(2,)),
    shape(cpu=1, claims=(0,)),
    shape(cpu=1, own_claims=(1,)),
)


def snapshot() -> Snapshot:
    """Return two nodes; on the second one a GPU is being released, and claim 0 is in use."""
    build = Builder(nodes=[Node(gpu=4), Node(gpu=4, used_gpu=2, releasing_gpu=1)])
    for one in SHAPES:
        build.shape(one)
    return build.snapshot(neighbours=neighbours(2, claim_node=(1, NONE), claim_users=(1, 0)))


def fits_room(ledger: Ledger, node: int, one: int) -> bool:
    """Say whether a pod fits into what is idle or being released."""
    return holds(ledger.room[node].tolist(), ledger.asked(one))


def state(ledger: Ledger) -> tuple[Any, ...]:
    """Return all that a ledger knows, bit for bit."""
    tables = (ledger.idle, ledger.room, ledger.counts, ledger.holders, ledger.ports)
    return (
        *((table.dtype, table.tobytes()) for table in tables),
        tuple(ledger.claim_node),
        tuple(ledger.claim_users),
    )


def gpus(ledger: Ledger) -> list[list[int]]:
    """Return idle GPUs, and those that one could wait for."""
    return [(ledger.idle[:, GPU] // 1000).tolist(), (ledger.room[:, GPU] // 1000).tolist()]


def _waits_after_all(ledger: Ledger) -> None:
    ledger.take(0, PLAIN, is_now=True)
    ledger.postpone(0, PLAIN)


# what is done -> GPUs of two nodes: idle, and with what is being released
CHANGES: list[Case[Callable[[Ledger], None], list[list[int]]]] = [
    Case("nothing", lambda _: None, [[4, 1], [4, 2]]),
    Case("what is idle is taken", lambda it: it.take(0, PLAIN, is_now=True), [[3, 1], [3, 2]]),
    Case(
        "who waits takes nothing idle", lambda it: it.take(1, PLAIN, is_now=False), [[4, 1], [4, 1]]
    ),
    Case("who goes leaves its room", lambda it: it.give(1, PLAIN), [[4, 2], [4, 3]]),
    Case(
        "who has to wait after all gives back what is idle, not the room",
        _waits_after_all,
        [[4, 1], [3, 2]],
    ),
    Case(
        "more is waited for than is being released",
        lambda it: it.take(1, LARGE, is_now=False),
        [[4, 1], [4, -2]],
    ),
]


@pytest.mark.parametrize("case", CHANGES, ids=ids)
def test_a_change(case: Case[Callable[[Ledger], None], list[list[int]]]) -> None:
    """Idle room and room that can be waited for; taking it back leaves no trace."""
    ledger = Ledger(snapshot())
    before = state(ledger)
    case.given(ledger)
    assert gpus(ledger) == case.want
    ledger.roll_back(0)
    assert state(ledger) == before


def test_every_resource_is_taken() -> None:
    """CPU, memory and the place for a pod as well."""
    ledger = Ledger(snapshot())
    ledger.take(0, PLAIN, is_now=True)
    whole = ledger.snapshot.nodes.idle[0]
    assert (whole - ledger.idle[0]).tolist() == list(SHAPES[PLAIN].request)


def test_neighbours_are_counted() -> None:
    """Who lies where, who keeps away from whom, ports."""
    ledger = Ledger(snapshot())
    ledger.take(1, SOCIAL, is_now=True)
    ledger.take(1, SOCIAL, is_now=False)
    ledger.take(0, PLAIN, is_now=True)
    assert ledger.counts.tolist() == [[0, 2]]
    assert ledger.holders.tolist() == [[0, 2]]
    assert ledger.ports.sum(axis=0).tolist() == [0, 0, 2, 0, 0, 2, 0, 0]
    assert ledger.turns == 2


def test_claims_are_in_use_where_their_pods_are() -> None:
    """A claim is free when its last pod is gone."""
    ledger = Ledger(snapshot())
    ledger.take(1, CLAIMS, is_now=True)
    ledger.take(0, OWN, is_now=True)
    assert (ledger.claim_node, ledger.claim_users) == ([1, 0], [2, 1])
    ledger.give(1, CLAIMS)
    ledger.give(0, OWN)
    assert (ledger.claim_node, ledger.claim_users) == ([1, NONE], [1, 0])
    ledger.give(1, CLAIMS)
    assert (ledger.claim_node, ledger.claim_users) == ([NONE, NONE], [0, 0])


def test_moves_tell_which_nodes_changed() -> None:
    """Also when something is taken back."""
    ledger = Ledger(snapshot())
    ledger.take(1, PLAIN, is_now=True)
    middle = ledger.checkpoint
    ledger.take(0, PLAIN, is_now=True)
    ledger.roll_back(middle)
    assert ledger.moves == [1, 0, 0]
    assert ledger.turns == 0


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
    """Into what is idle, and into what can be waited for."""
    ledger = Ledger(snapshot())
    assert (ledger.fits_idle(node, one), fits_room(ledger, node, one)) == fits


def test_an_exact_fit_is_one_and_what_is_not_asked_for_is_not_looked_at() -> None:
    """Four GPUs and no CPU fit where four GPUs are left and CPU is overcommitted."""
    build = Builder(nodes=[Node(gpu=8, used_gpu=4, cpu=2, used_cpu=3)])
    ledger = Ledger(_of(build, shape(gpu=4, cpu=0), shape(gpu=4, cpu=1)))
    assert (ledger.fits_idle(0, 0), fits_room(ledger, 0, 0)) == (True, True)
    assert (ledger.fits_idle(0, 1), fits_room(ledger, 0, 1)) == (False, False)


def test_a_wait_fits_only_into_the_room() -> None:
    """What is being released is not idle."""
    build = Builder(nodes=[Node(gpu=2, used_gpu=1, releasing_gpu=1)])
    ledger = Ledger(_of(build, shape(gpu=1)))
    assert (ledger.fits_idle(0, 0), fits_room(ledger, 0, 0)) == (False, True)


def _of(build: Builder, *shapes: Any) -> Snapshot:
    for one in shapes:
        build.shape(one)
    return build.snapshot()


def test_a_snapshot_stays_as_it_is() -> None:
    """The ledger works on its own copy, and nobody can write into a snapshot."""
    given_ = snapshot()
    before = state(Ledger(given_))
    ledger = Ledger(given_)
    for one in (PLAIN, SOCIAL, OWN):
        ledger.take(0, one, is_now=True)
    assert state(Ledger(given_)) == before
    with pytest.raises(ValueError, match="read-only"):
        given_.nodes.idle[0, 0] = 1


def _does(ledger: Ledger, there: list[tuple[int, int]], act: tuple[str, int, int]) -> None:
    """Take, give back or postpone a pod, if that can happen."""
    kind, node, one = act
    form = SHAPES[one]
    if kind != "take":
        if there:
            node, one = there.pop(node % len(there))
            (ledger.give if kind == "give" else ledger.postpone)(node, one)
        return
    if any(ledger.claim_node[claim] not in {NONE, node} for claim in form.claims):
        return
    if any(ledger.claim_users[claim] for claim in form.own_claims):
        return
    is_now = bool((node + one) % 3)
    ledger.take(node, one, is_now=is_now)
    if is_now:
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
    ledger = Ledger(snapshot())
    there: list[tuple[int, int]] = []
    for act in first:
        _does(ledger, there, act)
    checkpoint, before = ledger.checkpoint, state(ledger)
    for act in then:
        _does(ledger, there, act)
    ledger.roll_back(checkpoint)
    assert state(ledger) == before
    ledger.roll_back(0)
    assert state(ledger) == state(Ledger(snapshot()))
