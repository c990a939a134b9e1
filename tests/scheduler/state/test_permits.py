"""Who may use his queue, and what becomes of who may not: nothing new, and nothing is taken."""

from typing import Any

import pytest

from scheduler.core.model import Kind
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.encode import Encoded, encode
from scheduler.state.live import Live
from scheduler.state.news import ANY, NOTHING
from scheduler.state.permits import Permit, Use
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
from trainer_kai.api.names import ACCESS, QUEUE, RESERVED

PAIR = Key("ns", "q")
CLOSED = queue(meta={"annotations": {ACCESS: "closed"}})
MAY_NOT = (
    "namespace ns may not use queue q, which is closed (annotation trainer-kai.dev/access of queue "
    "q). It can start when group system:serviceaccounts:ns is granted the verb use on "
    "queues.scheduling.run.ai/q in that namespace: trainer-kai queue allow q -n ns"
)
_KNOWN_AND_GRANTED = "It can start when that is known and granted"
BEING_ASKED = f"whether namespace ns may use queue q is being asked. {_KNOWN_AND_GRANTED}"
NOT_ASKED = f"whether namespace ns may use queue q could not be asked yet. {_KNOWN_AND_GRANTED}"
POLICIES = choose(Choice())


def terms(*, needed: bool = False, unannotated: str = "open") -> Terms:
    """Return what a site decides."""
    return Terms(now=NOW, default_queue="q", needs_permission=needed, unannotated=unannotated)


def found_in(*objects: Any, permit: Permit | None, needed: bool = True) -> Encoded:
    """Encode a cluster in which that is known of the namespace."""
    given = cluster(CLOSED, *objects)
    if permit is not None:
        given.permits[PAIR] = permit
    return encode(given, terms(needed=needed))


# what is known, and whether it is needed -> what is in the way
KNOWN: list[Case[tuple[Permit | None, bool], str | None]] = [
    Case("not known, in files", (None, False), None),
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


# annotations of the queue and of its parent, what one without is -> whether it is closed, and asked
SAID: list[Case[tuple[str | None, str | None, str], tuple[bool, bool]]] = [
    Case("nothing is said", (None, None, "open"), (False, True)),
    Case("nothing is said, and closed", (None, None, "closed"), (True, True)),
    Case("closed", ("closed", None, "open"), (True, True)),
    Case("closed by its parent", (None, "closed", "open"), (True, True)),
    Case("open", ("open", None, "closed"), (False, False)),
    Case("open by its parent", (None, "open", "closed"), (False, False)),
    Case("open, and its parent closed", ("open", "closed", "closed"), (False, False)),
    Case("a slip", ("opn", "open", "open"), (True, True)),
]


def said(own: str | None, above: str | None) -> list[Any]:
    """Return the queue and its parent with their annotations."""
    notes = [{} if it is None else {"annotations": {ACCESS: it}} for it in (own, above)]
    return [queue("q", meta=notes[0], parentQueue="top"), queue("top", meta=notes[1])]


@pytest.mark.parametrize("case", SAID, ids=ids)
def test_the_nearest_queue_that_says_anything_decides(
    case: Case[tuple[str | None, str | None, str], tuple[bool, bool]],
) -> None:
    """A refusal bars units of closed queues alone; of open ones that say so nothing is asked."""
    own, above, unannotated = case.given
    is_closed, is_asked = case.want
    state = State(terms(needed=True, unannotated=unannotated))
    state.permits.tell(PAIR, Permit.REFUSED)
    for it in (*said(own, above), group("g", minMember=1, queue="q"), pod("p", "g")):
        tell(state, it)
    bar = bar_of(state.snapshot(NOW), "g")

    assert (bar is not None and bar[0] == "ForbiddenQueue") is is_closed
    assert set(state.uses) == ({Use(PAIR, is_closed)} if is_asked else set())


def test_another_annotation_or_parent_counts_at_once() -> None:
    """For what waits: no object of the namespace has to change for it."""
    state = State(terms(needed=True))
    state.permits.tell(PAIR, Permit.REFUSED)
    for it in (*said(None, None), group("g", minMember=1, queue="q"), pod("p", "g"), pod("alone")):
        tell(state, it)
    found = []
    for own, above in ((None, None), (None, "closed"), ("open", "closed"), ("closed", "closed")):
        for it in said(own, above):
            tell(state, it)
        state.check(NOW)
        encoded = state.snapshot(NOW)
        bars = [bar_of(encoded, it) for it in ("g", "pg-alone-alone")]
        found.append(([it is not None for it in bars], set(state.uses)))
    for it in (queue("q"), queue("top")):  # it has no parent any more, and says nothing
        tell(state, it)
    assert bar_of(state.snapshot(NOW), "g") is None

    asked = [{Use(PAIR, is_closed)} for is_closed in (False, True)]
    assert found == [
        ([False] * 2, asked[False]),
        ([True] * 2, asked[True]),
        ([False] * 2, set()),
        ([True] * 2, asked[True]),
    ]


ENDING = {"deletionTimestamp": "2026-01-05T07:59:59Z"}
# what is known, and what is of the gang -> the GPUs of ending pods that the queue is charged for
ENDS: list[Case[tuple[Permit | None, list[Any]], int]] = [
    Case("granted", (Permit.GRANTED, []), 1),
    Case("being asked", (None, []), 1),
    Case("refused", (Permit.REFUSED, []), 0),
    Case("refused, and others wait", (Permit.REFUSED, [pod("b", "g")]), 0),
    Case("refused, and others run", (Permit.REFUSED, [pod("b", "g", node="n")]), 1),
]


@pytest.mark.parametrize("case", ENDS, ids=ids)
def test_pods_that_end_count_where_their_gang_may_be(case: Case[Any, int]) -> None:
    """They ran in another queue, unless some of their gang run; it is asked for them, too."""
    permit, others = case.given
    state = State(terms(needed=True))
    ends = pod("a", "g", node="n", meta=ENDING)
    for it in (CLOSED, node("n"), group("g", minMember=1, queue="q"), ends, *others):
        tell(state, it)
    state.snapshot(NOW)
    assert set(state.uses) == {Use(PAIR, is_closed=True)}
    state.permits.tell(PAIR, permit)

    going = state.snapshot(NOW).snapshot.queues.going

    assert sum(it.amounts[Kind.GPU] for it in going) == 1000 * case.want
    state.check(NOW)


def test_a_value_that_is_neither_is_told() -> None:
    """With the queue, the annotation, and what would be right."""
    given = cluster(queue(meta={"annotations": {ACCESS: "private"}}))
    (told,) = (it.told for it in encode(given, terms()).strays)
    assert told == (
        "queue q: annotation trainer-kai.dev/access is 'private', and must be closed or open: it "
        "counts as closed"
    )


def test_a_queue_that_is_none_is_not_asked_for() -> None:
    """Whatever names are made up, no more is remembered than there are queues."""
    state = State(terms(needed=True))
    state.tell_all(cluster(CLOSED, queue("top"), queue("leaf", parentQueue="top")))
    for name in ("none", "top", "q"):
        shelf, key, obj = decoded(pod(name, labels={QUEUE: name}))
        getattr(state, shelf).tell(key, obj)
    found = state.snapshot(NOW)

    assert set(state.uses) == {Use(PAIR, is_closed=True)}
    bars = [bar_of(found, f"pg-{it}-{it}") for it in ("none", "top")]
    assert [bar and bar[0] for bar in bars] == ["QueueMissing", "Misconfigured"]


def test_pairs_go_with_their_units() -> None:
    """With the last one that is of them."""
    state = State(terms())
    for it in (queue(), group("g", queue="q"), pod("a", "g"), pod("b")):
        tell(state, it)
    state.snapshot(NOW)
    assert set(state.uses) == {Use(PAIR, is_closed=False)}
    state.pods.tell(Key("ns", "b"), None)
    state.snapshot(NOW)
    assert set(state.uses) == {Use(PAIR, is_closed=False)}
    state.pods.tell(Key("ns", "a"), None)
    state.snapshot(NOW)
    assert set(state.uses) == set()


def test_an_answer_is_heard_by_those_it_concerns() -> None:
    """And by nobody twice."""
    live = Live(lambda: terms(needed=True))
    seen: list[set[Use]] = []
    live.on_uses = lambda uses: seen.append({*uses})
    for it in (CLOSED, group("g", minMember=1, queue="q"), pod("p", "g"), pod("b")):
        shelf, key, obj = decoded(it)
        if shelf == "pods":
            live.pod(key, obj)
        elif shelf == "pod_groups":
            live.group(key, obj)
        else:
            live.put(live.cluster.queues, Key("", key), obj)
    live.snapshot()
    assert seen == [{Use(PAIR, is_closed=True)}]
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
