"""Who may use his queue, and what becomes of who may not: nothing new, and nothing is taken."""

from typing import Any

import pytest

from scheduler.core.model import Kind
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.encode import Encoded, encode
from scheduler.state.live import Live
from scheduler.state.news import ANY, NOTHING
from scheduler.state.permits import Permit
from scheduler.state.state import State
from scheduler.state.terms import Terms
from tests.support.case import Case, ids
from tests.support.changes import tell
from tests.support.clusters import (
    NOW,
    bar_of,
    cluster,
    decoded,
    group,
    node,
    pod,
    queue,
    unit_of,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.names import QUEUE, RESERVED

PAIR = Key("ns", "q")
MAY_NOT = (
    "namespace ns may not use queue q. It can start when verb use on queues.scheduling.run.ai/q is "
    "granted to group system:serviceaccounts:ns (a RoleBinding in namespace ns)"
)
_KNOWN_AND_GRANTED = "It can start when that is known and granted"
BEING_ASKED = f"whether namespace ns may use queue q is being asked. {_KNOWN_AND_GRANTED}"
NOT_ASKED = f"whether namespace ns may use queue q could not be asked yet. {_KNOWN_AND_GRANTED}"
POLICIES = choose(Choice())


def terms(*, needed: bool = False) -> Terms:
    """Return what a site decides."""
    return Terms(now=NOW, default_queue="q", needs_permission=needed)


def found_in(*objects: Any, permit: Permit | None, needed: bool = True) -> Encoded:
    """Encode a cluster in which that is known of the namespace."""
    given = cluster(queue(), *objects)
    if permit is not None:
        given.permits[PAIR] = permit
    return encode(given, terms(needed=needed))


# what is known, and whether it is needed -> what is in the way
KNOWN: list[Case[tuple[Permit | None, bool], str | None]] = [
    Case("nobody asks", (None, False), None),
    Case("granted", (Permit.GRANTED, True), None),
    Case("refused", (Permit.REFUSED, True), MAY_NOT),
    Case("refused, in a file", (Permit.REFUSED, False), MAY_NOT),
    Case("not known yet", (None, True), BEING_ASKED),
    Case("nobody answers", (Permit.UNASKED, True), NOT_ASKED),
]


@pytest.mark.parametrize("case", KNOWN, ids=ids)
def test_what_is_in_the_way(case: Case[tuple[Permit | None, bool], str | None]) -> None:
    """Of a group, of a pod that names the queue, and of one that names none."""
    permit, needed = case.given
    objects = (
        group("g", minMember=1, queue="q"),
        pod("p", "g"),
        pod("named", labels={QUEUE: "q"}),
        pod("default"),
    )
    found = found_in(*objects, permit=permit, needed=needed)

    want = None if case.want is None else ("ForbiddenQueue", case.want)
    assert [bar_of(found, it) for it in ("g", "pg-named-named", "pg-default-default")] == [want] * 3


def test_a_queue_that_is_none_is_not_asked_for() -> None:
    """Whatever names are made up, no more is remembered than there are queues."""
    state = State(terms(needed=True))
    state.tell_all(cluster(queue(), queue("top"), queue("leaf", parentQueue="top")))
    for name in ("none", "top", "q"):
        shelf, key, obj = decoded(pod(name, labels={QUEUE: name}))
        getattr(state, shelf).tell(key, obj)
    found = state.snapshot(NOW)

    assert set(state.pairs) == {PAIR}
    bars = [bar_of(found, f"pg-{it}-{it}") for it in ("none", "top")]
    assert [bar and bar[0] for bar in bars] == ["QueueMissing", "Misconfigured"]


def test_pairs_go_with_their_units() -> None:
    """With the last one that is of them."""
    state = State(terms())
    for it in (queue(), group("g", queue="q"), pod("a", "g"), pod("b")):
        tell(state, it)
    state.snapshot(NOW)
    assert set(state.pairs) == {PAIR}
    state.pods.tell(Key("ns", "b"), None)
    state.snapshot(NOW)
    assert set(state.pairs) == {PAIR}
    state.pods.tell(Key("ns", "a"), None)
    state.snapshot(NOW)
    assert set(state.pairs) == set()


def test_an_answer_is_heard_by_those_it_concerns() -> None:
    """And by nobody twice."""
    live = Live(lambda: terms(needed=True))
    seen: list[set[Key]] = []
    live.on_pairs = lambda pairs: seen.append({*pairs})
    for it in (queue(), group("g", minMember=1, queue="q"), pod("p", "g"), pod("b")):
        shelf, key, obj = decoded(it)
        if shelf == "pods":
            live.pod(key, obj)
        elif shelf == "pod_groups":
            live.group(key, obj)
        else:
            live.put(live.cluster.queues, Key("", key), obj)
    live.snapshot()
    assert seen == [{PAIR}]
    assert live.permit(PAIR, Permit.GRANTED) == ANY
    assert live.permit(PAIR, Permit.GRANTED) == NOTHING
    found = live.snapshot()
    assert (bar_of(found, "g"), bar_of(found, "pg-b-b")) == (None, None)
    live.check()
    assert live.permit(PAIR, Permit.REFUSED) == ANY
    assert bar_of(live.snapshot(), "g") == ("ForbiddenQueue", MAY_NOT)
    live.check()


def requested(found: Encoded) -> int:
    """Return how many GPUs the queue asks for."""
    return int(found.snapshot.queues.requested[0, Kind.GPU]) // 1000


@pytest.mark.parametrize("permit", [Permit.REFUSED, Permit.UNASKED, None])
def test_who_may_not_demands_nothing(permit: Permit | None) -> None:
    """Nobody's fair share becomes smaller by who can never start."""
    objects = (node("a", gpu=8), group("g", minMember=1, queue="q"), pod("p", "g"))
    alone = pod("b")

    assert requested(found_in(*objects, alone, permit=Permit.GRANTED)) == 2
    assert requested(found_in(*objects, alone, permit=permit)) == 0


def bound(found: Encoded) -> set[str]:
    """Return which pods a plan binds."""
    made = plan(found.snapshot, POLICIES)
    return {found.pods[it.pod].name for one in made.decisions for it in one.binds}


_HELD = '{"default": {"nodes": {"a": 1}, "cause": "repair"}}'

# minimum, pods that run, pods that wait, slots -> who is bound, and what the queue asks for
RUNNING: list[Case[tuple[int, int, int, str], tuple[int, int]]] = [
    Case("it has all", (2, 2, 0, ""), (0, 2)),
    Case("it wants more than it needs", (2, 2, 2, ""), (0, 2)),
    Case("it lost one that it needs", (2, 1, 1, ""), (1, 2)),
    Case("it lost one that it needs, and wants more", (2, 1, 3, ""), (1, 4)),
    Case("a place is kept for one that it needs", (3, 2, 1, _HELD), (1, 3)),
    Case("and one more would like to come", (3, 2, 2, _HELD), (1, 4)),
    Case("what it could spare has no place that is kept", (1, 2, 1, _HELD), (0, 2)),
]


@pytest.mark.parametrize("permit", [Permit.REFUSED, Permit.UNASKED, None])
@pytest.mark.parametrize("case", RUNNING, ids=ids)
def test_who_runs_goes_on_and_does_not_grow(
    case: Case[tuple[int, int, int, str], tuple[int, int]], permit: Permit | None
) -> None:
    """It may be made whole again; nothing is taken from it, whatever is known by now."""
    minimum, running, waiting, held = case.given
    notes = {"annotations": {RESERVED: held}} if held else {}
    found = found_in(
        node("a", gpu=8),
        group("g", minMember=minimum, queue="q", meta=notes),
        *(pod(f"r{i}", "g", node="a") for i in range(running)),
        *(pod(f"w{i}", "g") for i in range(waiting)),
        permit=permit,
    )
    made = plan(found.snapshot, POLICIES)

    assert (len(bound(found)), requested(found)) == case.want
    assert made.evictions == ()
    told = [it.verdict.title for it in made.rejections]
    assert told == (["ForbiddenQueue"] if waiting > case.want[0] else [])
    assert unit_of(found, "g").bar is None


def test_who_runs_with_permission_grows() -> None:
    """As far as there is room."""
    found = found_in(
        node("a", gpu=8),
        group("g", minMember=1, queue="q"),
        pod("r", "g", node="a"),
        *(pod(f"w{i}", "g") for i in range(3)),
        permit=Permit.GRANTED,
    )
    assert bound(found) == {"w0", "w1", "w2"}


def test_a_promise_is_no_start() -> None:
    """Who was promised a node while he might use his queue does not start when he may not."""
    waits = pod("p", "g", status={"nominatedNodeName": "a"})
    objects = (node("a", gpu=8), group("g", minMember=1, queue="q"), waits)
    assert bound(found_in(*objects, permit=Permit.REFUSED)) == set()
    assert bound(found_in(*objects, permit=Permit.GRANTED)) == {"p"}
