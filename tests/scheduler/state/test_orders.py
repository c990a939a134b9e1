"""The way back from rows to names."""

import json

import numpy as np
import pytest

from scheduler.core.decision import (
    Admission,
    BarNumbers,
    Placing,
    Plan,
    Rejection,
    Reservation,
)
from scheduler.core.model import Cause, Verdict
from scheduler.state.encode import Encoded
from scheduler.state.orders import read_orders
from tests.support.case import Case, ids
from tests.support.clusters import JOBSET, encoded, group, jobset_pod, node, pod
from trainer_kai.api.meta import Key


def _plan(*admissions: Admission, rejections: tuple[Rejection, ...] = ()) -> Plan:
    return Plan(admissions, rejections, np.zeros((1, 3), dtype=np.int64))


def _gang(held: dict[str, int] | None = None, count: int = 3) -> Encoded:
    """Return a unit whose first pod is there, whose second waits, and of which more come later."""
    later = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": count}
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [later]})}
    if held:
        text = {"l-replica-0": {"nodes": held, "cause": "anticipated"}}
        annotations["trainer-kai.dev/reserved"] = json.dumps(text, separators=(",", ":"))
    subs = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 3}]
    fields = group(
        "g", meta={"annotations": annotations, "ownerReferences": [JOBSET]}, subGroups=subs
    )
    pods = jobset_pod("n", "g", node="a"), jobset_pod("l", "g", "l")
    return encoded(node("a"), node("b"), fields, *pods)


def _text(**nodes: int) -> str:
    found = {"l-replica-0": {"nodes": nodes, "cause": "anticipated"}}
    return json.dumps(found, separators=(",", ":"))


def test_rows_become_names() -> None:
    """In the order in which it was decided."""
    found = encoded(node("a"), node("b"), pod("p"), pod("q"), pod("r"))
    rejection = Rejection(
        2, Verdict.NO_CAPACITY, BarNumbers("x"), is_curable=False, wakes_on=frozenset()
    )

    orders = read_orders(
        found,
        _plan(
            Admission(1, binds=(Placing(1, 0),)),
            Admission(0, nominations=(Placing(0, 1),)),
            rejections=(rejection,),
        ),
    )

    assert orders.binds == ((Key("ns", "q"), "a"),)
    assert orders.nominations == ((Key("ns", "p"), "b"),)
    assert orders.unschedulable == ((Key("ns", "pg-r-r"), Verdict.NO_CAPACITY, rejection),)
    assert (orders.reservations, orders.reserved) == ((), {})


def test_what_is_held_from_now_on() -> None:
    """It is told by names, and written for the whole group."""
    one = Reservation("l-replica-0", 1, 2, Cause.ANTICIPATED)

    orders = read_orders(_gang({"a": 1}), _plan(Admission(0, reservations=(one,))))

    assert orders.reservations == ((Key("ns", "g"), "l-replica-0", "b", 2, "anticipated"),)
    assert orders.reserved == {Key("ns", "g"): _text(a=1, b=2)}


def test_a_pod_that_gets_its_place_gives_up_a_slot() -> None:
    """The first one, wherever it was placed; the last slot leaves no annotation."""
    found = _gang({"a": 1, "b": 1})
    row = found.pods.index(Key("ns", "l"))
    bound = _plan(Admission(0, binds=(Placing(row, 1),)))
    promised = _plan(Admission(0, nominations=(Placing(row, 1),)))

    assert read_orders(found, bound).reserved == {Key("ns", "g"): _text(b=1)}
    assert read_orders(found, promised).reserved == {Key("ns", "g"): _text(b=1)}
    assert read_orders(_gang({"a": 1}), bound).reserved == {Key("ns", "g"): ""}


def test_what_stays_as_it_is_is_not_written() -> None:
    """And what is out of date is brought up to date, though nothing was decided."""
    assert read_orders(_gang({"a": 1}), _plan()).reserved == {}
    assert read_orders(_gang({"a": 1, "gone": 1}), _plan()).reserved == {Key("ns", "g"): _text(a=1)}


@pytest.mark.parametrize(
    "case",
    [
        Case("nothing was decided", None, []),
        Case("it found no room", Verdict.NO_CAPACITY, ["p"]),
        Case("a bound of its queue is in the way", Verdict.EXCEEDS_LIMIT, ["p"]),
        Case("one of its pods is made anew", Verdict.PODS_MISSING, []),
    ],
    ids=ids,
)
def test_what_was_promised_is_taken_back(case: Case[Verdict | None, list[str]]) -> None:
    """Of a unit that was tried; whoever was promised nothing, or gets his place, is let alone."""
    promised = {"nominatedNodeName": "a"}
    pods = (pod("p", "g", status=promised), pod("q", "g", status=promised), pod("r", "g"))
    found = encoded(node("a"), group("g"), *pods)
    unit = found.units.index(Key("ns", "g"))
    bound = Admission(unit, binds=(Placing(found.pods.index(Key("ns", "q")), 0),))
    told = [] if case.given is None else [case.given]
    rejections = tuple(
        Rejection(unit, it, BarNumbers("x"), is_curable=False, wakes_on=frozenset()) for it in told
    )

    (orders,) = read_orders(found, _plan(bound, rejections=rejections)).units

    assert [(it.pod.name, it.node) for it in orders.nominations] == [(it, "") for it in case.want]


def test_of_a_unit_that_gets_nothing_too() -> None:
    """There is nothing else to do for it."""
    found = encoded(node("a"), group("g"), pod("p", "g", status={"nominatedNodeName": "a"}))
    rejection = Rejection(
        0, Verdict.FRAGMENTED, BarNumbers("x"), is_curable=False, wakes_on=frozenset()
    )

    (orders,) = read_orders(found, _plan(rejections=(rejection,))).units

    assert orders.nominations == ((Key("ns", "p"), ""),)
    assert (orders.binds, orders.hold, orders.let_go) == ((), None, None)
