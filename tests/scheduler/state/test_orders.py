"""The way back from rows to names."""

import json

import numpy as np
import pytest

from scheduler.core.decision import (
    Plan,
    PodGroupAllocation,
    PodPlacement,
    PreFilterDetails,
    Rejection,
    Reservation,
)
from scheduler.core.model import ReservationCause, UnschedulableReason
from scheduler.state.encode import EncodedSnapshot
from scheduler.state.orders import read_commands
from tests.support.case import Case, ids
from tests.support.clusters import JOBSET, encode_objects, group, jobset_pod, node, pod
from trainer_kai.api.meta import Key


def _plan(*admissions: PodGroupAllocation, rejections: tuple[Rejection, ...] = ()) -> Plan:
    return Plan(admissions, rejections, np.zeros((1, 3), dtype=np.int64))


def _podgroup(reserved: dict[str, int] | None = None, count: int = 3) -> EncodedSnapshot:
    """Return a unit whose first pod is there, whose second waits, and of which more come later."""
    expected = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": count}
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [expected]})}
    if reserved:
        text = {"l-replica-0": {"nodes": reserved, "cause": "anticipated"}}
        annotations["trainer-kai.dev/reserved"] = json.dumps(text, separators=(",", ":"))
    subs = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 3}]
    fields = group(
        "g", meta={"annotations": annotations, "ownerReferences": [JOBSET]}, subGroups=subs
    )
    pods = jobset_pod("n", "g", node="a"), jobset_pod("l", "g", "l")
    return encode_objects(node("a"), node("b"), fields, *pods)


def _text(**nodes: int) -> str:
    found = {"l-replica-0": {"nodes": nodes, "cause": "anticipated"}}
    return json.dumps(found, separators=(",", ":"))


def test_rows_become_names() -> None:
    """In the order in which it was decided."""
    found = encode_objects(node("a"), node("b"), pod("p"), pod("q"), pod("r"))
    rejection = Rejection(
        2,
        UnschedulableReason.NO_CAPACITY,
        PreFilterDetails("x"),
        is_resolvable=False,
        retry_on=frozenset(),
    )

    commands = read_commands(
        found,
        _plan(
            PodGroupAllocation(1, binds=(PodPlacement(1, 0),)),
            PodGroupAllocation(0, nominations=(PodPlacement(0, 1),)),
            rejections=(rejection,),
        ),
    )

    assert commands.binds == ((Key("ns", "q"), "a"),)
    assert commands.nominations == ((Key("ns", "p"), "b"),)
    assert commands.unschedulable == (
        (Key("ns", "pg-r-r"), UnschedulableReason.NO_CAPACITY, rejection),
    )
    assert (commands.reservations, commands.reserved) == ((), {})


def test_new_reservations() -> None:
    """It is told by names, and written for the whole group."""
    one = Reservation("l-replica-0", 1, 2, ReservationCause.ANTICIPATED)

    commands = read_commands(_podgroup({"a": 1}), _plan(PodGroupAllocation(0, reservations=(one,))))

    assert commands.reservations == ((Key("ns", "g"), "l-replica-0", "b", 2, "anticipated"),)
    assert commands.reserved == {Key("ns", "g"): _text(a=1, b=2)}


def test_a_bound_pod_releases_one_place() -> None:
    """The first one, wherever it was placed; the last slot leaves no annotation."""
    found = _podgroup({"a": 1, "b": 1})
    row = found.pod_keys.index(Key("ns", "l"))
    bound = _plan(PodGroupAllocation(0, binds=(PodPlacement(row, 1),)))
    nominated = _plan(PodGroupAllocation(0, nominations=(PodPlacement(row, 1),)))

    assert read_commands(found, bound).reserved == {Key("ns", "g"): _text(b=1)}
    assert read_commands(found, nominated).reserved == {Key("ns", "g"): _text(b=1)}
    assert read_commands(_podgroup({"a": 1}), bound).reserved == {Key("ns", "g"): ""}


def test_what_stays_as_it_is_is_not_written() -> None:
    """And what is out of date is brought up to date, though nothing was decided."""
    assert read_commands(_podgroup({"a": 1}), _plan()).reserved == {}
    assert read_commands(_podgroup({"a": 1, "gone": 1}), _plan()).reserved == {
        Key("ns", "g"): _text(a=1)
    }


@pytest.mark.parametrize(
    "case",
    [
        Case("nothing was decided", None, []),
        Case("it found no room", UnschedulableReason.NO_CAPACITY, ["p"]),
        Case("a bound of its queue is in the way", UnschedulableReason.EXCEEDS_LIMIT, ["p"]),
        Case("one of its pods is made anew", UnschedulableReason.PODS_MISSING, []),
    ],
    ids=ids,
)
def test_a_nomination_is_taken_back(case: Case[UnschedulableReason | None, list[str]]) -> None:
    """Of a unit that was tried; whoever was promised nothing, or gets his place, is let alone."""
    nominated = {"nominatedNodeName": "a"}
    pods = (pod("p", "g", status=nominated), pod("q", "g", status=nominated), pod("r", "g"))
    found = encode_objects(node("a"), group("g"), *pods)
    podgroup = found.podgroup_keys.index(Key("ns", "g"))
    bound = PodGroupAllocation(
        podgroup, binds=(PodPlacement(found.pod_keys.index(Key("ns", "q")), 0),)
    )
    reported = [] if case.given is None else [case.given]
    rejections = tuple(
        Rejection(podgroup, it, PreFilterDetails("x"), is_resolvable=False, retry_on=frozenset())
        for it in reported
    )

    (commands,) = read_commands(found, _plan(bound, rejections=rejections)).podgroups

    assert [(it.pod.name, it.node) for it in commands.nominations] == [(it, "") for it in case.want]


def test_of_a_podgroup_that_gets_nothing_too() -> None:
    """There is nothing else to do for it."""
    found = encode_objects(node("a"), group("g"), pod("p", "g", status={"nominatedNodeName": "a"}))
    rejection = Rejection(
        0,
        UnschedulableReason.FRAGMENTED,
        PreFilterDetails("x"),
        is_resolvable=False,
        retry_on=frozenset(),
    )

    (commands,) = read_commands(found, _plan(rejections=(rejection,))).podgroups

    assert commands.nominations == ((Key("ns", "p"), ""),)
    assert (commands.binds, commands.reserve_annotation, commands.release_annotation) == (
        (),
        None,
        None,
    )
