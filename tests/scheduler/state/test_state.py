"""A state that has heard of every change says the same as one that is told all at once."""

from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.explain import explain
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.encode import Encoded, encode
from scheduler.state.orders import read_orders
from scheduler.state.said import said
from scheduler.state.state import State
from scheduler.state.terms import Terms
from tests.support.changes import Change, changes, gone, tell
from tests.support.clusters import NOW, decoded, node, pod, queue
from tests.support.size import examples
from tests.support.turns import TURNS, Turn
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod

POLICIES: Final = choose(Choice())
TERMS: Final = Terms(now=NOW, default_queue="q")
_PLACES: Final = [node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"})]


@pytest.mark.parametrize("turn", TURNS, ids=[turn.name for turn in TURNS])
def test_after_a_change_a_state_says_what_a_fresh_one_says(turn: Turn) -> None:
    """Also when it is told twice, and when everything is told once more."""
    state = State(TERMS)
    for one in (queue(), *_PLACES, *turn.before):
        tell(state, one)
    state.check(NOW)

    for change in turn.changes:
        tell(state, change)
        tell(state, change)
        state.check(NOW)
    state.check(NOW + turn.seconds)

    state.tell_all(state.cluster)
    state.check(NOW + turn.seconds)


def _labelled(name: str, app: str) -> Pod:
    """Return a pod with labels of its own, which nothing else keeps alive."""
    _, _, found = decoded(pod(name))
    meta = msgspec.structs.replace(found.metadata, labels={"app": app})
    return Pod(metadata=meta, spec=found.spec, status=found.status)


def test_an_identity_is_only_good_while_its_object_lives() -> None:
    """Other labels may come to lie where those of a pod lay that is gone."""
    state = State(TERMS)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "1"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for one in (*_PLACES, pod("q", affinity=near)):
        tell(state, one)
    for name in ("kin", "gone"):
        state.pods.tell(Key("ns", name), _labelled(name, "1"))
        state.snapshot(NOW)
    labels = state.cluster.pods[Key("ns", "gone")].metadata.labels
    identity = id(labels)
    state.pods.tell(Key("ns", "gone"), None)
    state.snapshot(NOW)

    del labels  # nobody else had them any more
    others = [_labelled("new", "2") for _ in range(1000)]
    (new,) = (one for one in others if id(one.metadata.labels) == identity)
    state.pods.tell(Key("ns", "new"), new)
    state.check(NOW)


def test_what_was_handed_out_does_not_change() -> None:
    """A plan is made of it while the state hears of more."""
    state = State(TERMS)
    for one in (queue(), *_PLACES, pod("p", node="a"), pod("q")):
        tell(state, one)
    before = state.snapshot(NOW)
    told = said(before)

    for one in (
        pod("q", node="b"),
        node("a", gpu=1, labels={"zone": "x"}),
        node("0"),
        queue("r", parentQueue="q"),
    ):
        tell(state, one)
        state.snapshot(NOW + 1)

    assert said(before) == told


def test_a_state_that_is_mostly_empty_begins_anew() -> None:
    """Slots of pods that have gone cost as much as others."""
    state = State(TERMS)
    names = [f"p{n}" for n in range(300)]
    for one in (*_PLACES, *(pod(name, node="a") for name in names)):
        tell(state, one)
    state.check(NOW)
    for name in names[1:]:
        tell(state, gone(pod(name)))

    state.check(NOW)
    found = state.snapshot(NOW)

    assert [key.name for key in found.pods] == ["p0"]


_CASES = [[*turn.before, *turn.changes] for turn in TURNS]


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.sampled_from(_CASES) | changes(), st.sampled_from([0, 60, -90]))))
def test_whatever_happens_a_state_says_what_a_fresh_one_says(
    happened: list[tuple[list[Change], int]],
) -> None:
    """And it comes to the same plan."""
    state, now = State(TERMS), NOW
    for some, seconds in happened:
        for change in some:
            tell(state, change)
        now += seconds

        state.check(now)
        terms = replace(TERMS, now=now)
        assert _orders(state.snapshot(now)) == _orders(encode(state.cluster, terms))


def _orders(encoded: Encoded) -> list[Any]:
    """Return what is to be done, and what is told of those who wait."""
    orders = read_orders(encoded, plan(encoded.snapshot, POLICIES))
    told = [
        (it.group, it.verdict, explain(encoded.snapshot, it.rejection))
        for it in orders.unschedulable
    ]
    return [orders.binds, orders.nominations, orders.reservations, orders.reserved, told]
