"""A TrainJob that is moved has no pods for a while, and keeps its slots until they are back."""

import json
from typing import Any

import msgspec
import pytest

from scheduler.core.model import Cause, Slot, leaves_of
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.departures import Departure
from scheduler.state.encode import Encoded, encode
from scheduler.state.moved import with_holds
from scheduler.state.orders import read_orders
from scheduler.state.reserved import SlotAt, coming_back, write_reserved
from scheduler.state.state import State
from scheduler.state.terms import Terms
from tests.support.case import Case, ids
from tests.support.clusters import (
    JOBSET,
    NOW,
    cluster,
    decoded,
    group,
    jobset_pod,
    made,
    node,
    pod,
    queue,
    unit_of,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.share import Stamped

Fields = dict[str, Any]

LEAF = "n-replica-0"
LIKE: Fields = {
    "subGroupPrefix": LEAF,
    "replicas": 1,
    "count": 2,
    "requests": {"nvidia.com/gpu": "1"},
}
GOING: Fields = {"deletionTimestamp": "2026-01-05T07:59:59Z"}
RECORD: Fields = {"trainer-kai.dev/evicted-by": json.dumps({"trainJob": "t", "podGroup": "g"})}


def trainjob(*, suspend: bool = True, uid: str = "t") -> Fields:
    """Return the TrainJob, suspended; its group says by whom."""
    return made("TrainJob", "j", {"uid": uid}, spec={"suspend": suspend})


def jobset(status: str = "", *, suspend: bool = True) -> Fields:
    """Return its JobSet."""
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "j",
        "uid": "t",
        "controller": True,
    }
    meta = {"uid": "u", "ownerReferences": [owner]}
    spec, state = {"suspend": suspend}, {"terminalState": status}
    return made("JobSet", "j", meta, spec=spec, status=state)


def moved(
    until: str = "2026-01-05T08:05:00Z", *, like: Fields | None = LIKE, record: Fields = RECORD
) -> Fields:
    """Return its group, with two slots on the node "n"; it says that we have suspended it."""
    held = {"nodes": {"n": 2}, "cause": "move", "until": until, "like": like}
    text = json.dumps({LEAF: {name: it for name, it in held.items() if it}})
    notes = {"trainer-kai.dev/reserved": text, **record}
    meta = {"ownerReferences": [JOBSET], "annotations": notes}
    return group("g", meta=meta, subGroups=[{"name": LEAF, "minMember": 2}])


def pods(count: int = 2, **more: Any) -> list[Fields]:
    """Return some of its pods."""
    return [jobset_pod(f"g{i}", "g", **more) for i in range(count)]


def slots(found: Encoded) -> list[Slot]:
    """Return what is held."""
    leaves = [leaf for unit in found.snapshot.units for leaf in leaves_of(unit.tree)]
    return [slot for leaf in leaves for slot in leaf.slots]


def known(*objects: Fields) -> Encoded:
    """Encode objects, with a queue and a node of eight GPUs."""
    return encode(cluster(node("n"), queue(), *objects), Terms(now=NOW))


HELD: list[Case[list[Fields], int]] = [
    Case("while its pods are going", [*pods(meta=GOING, node="n")], 2),
    Case("when they are gone", [], 2),
    Case("when it is resumed", [trainjob(suspend=False)], 2),
    Case("when its JobSet is as well", [trainjob(suspend=False), jobset(suspend=False)], 2),
    Case("while some are back", [trainjob(suspend=False), jobset(suspend=False), *pods(1)], 2),
    Case("until all are there", [trainjob(suspend=False), *pods(node="n")], 0),
    Case("not if its user suspends it", [moved(record={})], 0),
    Case("nor if another one of its name is suspended", [trainjob(uid="another")], 0),
    Case("nor if it is over", [jobset("Completed")], 0),
    Case("nor longer than it was to be", [moved("2026-01-05T08:00:00Z")], 0),
    Case("nor until nobody knows when", [moved("soon")], 0),
    Case("nor if nobody knows what it is like", [moved(like=None)], 0),
]


@pytest.mark.parametrize("case", HELD, ids=ids)
def test_its_slots_are_held(case: Case[list[Fields], int]) -> None:
    """They lie there like pods, and are charged to its queue."""
    found = known(moved(), jobset(), trainjob(), *case.given)

    assert [slot.cause for slot in slots(found)] == [Cause.MOVE] * case.want
    placed = [it for it in case.given if it["kind"] == "Pod" and it["spec"]["nodeName"]]
    going = [it for it in placed if "deletionTimestamp" in it["metadata"]]
    assert found.snapshot.nodes.idle[0, -1] == 1000 * (8 - case.want - len(placed))
    assert found.snapshot.nodes.releasing[0, -1] == 1000 * len(going)
    has = case.want + len(placed) - len(going)
    assert found.snapshot.queues.allocated[0, -1] == 1000 * has


def test_nobody_takes_from_it_meanwhile() -> None:
    """What is on its way has nothing that could be taken, but the promise."""
    unit = unit_of(known(moved(), jobset(), trainjob()), "g")

    assert unit.stays == "it is on its way to another place"
    assert (unit.is_kept, unit.bar) == (True, None)


def test_it_is_brought_up_to_date() -> None:
    """Whatever is told, and in whichever order: it is as if it were told at once."""
    state, held = State(Terms(now=NOW)), list[int]()

    def tell(*objects: Fields, now: int = NOW) -> None:
        for fields in objects:
            shelf, key, one = decoded(fields)
            getattr(state, shelf).tell(key, one)
        held.append(len(slots(state.snapshot(now))))
        state.check(now)

    tell(node("n"), queue(), moved(), trainjob(), jobset())
    tell(moved(record={}))
    tell(moved())
    tell(trainjob(suspend=False))
    tell(jobset(suspend=False), *pods(1))
    tell(*pods(2, node="n"))
    state.pods.tell(Key("ns", "g0"), None)
    state.pods.tell(Key("ns", "g1"), None)
    tell(now=NOW + 299)
    tell(now=NOW + 300)
    tell(now=NOW + 1)
    tell(group("g", meta={"ownerReferences": [JOBSET]}, minMember=2))

    assert held == [2, 0, 2, 2, 2, 0, 2, 0, 2, 0]


def test_each_leaf_is_awaited_for_as_long_as_it_says() -> None:
    """The one whose time is over lets its slots go, then the other."""
    state, held = State(Terms(now=NOW)), list[int]()
    leaves = {
        f"{name}-replica-0": {
            "nodes": {"n": 1},
            "cause": "move",
            "until": f"2026-01-05T08:0{minute}:00Z",
            "like": {**LIKE, "count": 1},
        }
        for name, minute in (("n", 1), ("m", 2))
    }
    notes = {"trainer-kai.dev/reserved": json.dumps(leaves), **RECORD}
    subs = [{"name": name, "minMember": 1} for name in leaves]
    both = group("g", meta={"ownerReferences": [JOBSET], "annotations": notes}, subGroups=subs)
    for fields in (node("n"), queue(), both, trainjob(), jobset()):
        shelf, key, one = decoded(fields)
        getattr(state, shelf).tell(key, one)
    for now in (NOW, NOW + 60, NOW + 120, NOW + 60):
        held.append(len(slots(state.snapshot(now))))
        state.check(now)

    assert held == [2, 1, 0, 1]


def test_what_is_written_of_it() -> None:
    """Each leaf, and how long it is waited for; the rest is kept when some of it is let go."""
    found = cluster(moved(), *pods(2, node="n", nodeSelector={"a": "b"}))
    for key, it in found.pods.items():  # as a watch decodes them
        labels = Stamped({**it.metadata.labels, COMPLETION_INDEX: ""}, key.name)
        meta = msgspec.structs.replace(it.metadata, labels=labels)
        found.pods[key] = msgspec.structs.replace(it, metadata=meta)
    places = tuple(SlotAt(LEAF, name, Cause.MOVE) for name in ("x", "y"))
    one = Departure(
        (Key("ns", "g"),),
        tuple(found.pods),
        "consolidation",
        None,
        "",
        0,
        slots=((Key("ns", "g"), places),),
    )

    ((key, text),) = with_holds(one, found, NOW).holds

    (held,) = coming_back(text).values()
    assert (key.name, held.until, held.nodes) == ("g", "2026-01-05T08:05:00Z", {"x": 1, "y": 1})
    assert held.like is not None
    assert (held.like.count, held.like.node_selector) == (2, {"a": "b"})
    assert held.like.requests == {"nvidia.com/gpu": "1"}
    assert held.like.labels["kai.scheduler/subgroup-name"] == LEAF
    assert COMPLETION_INDEX not in held.like.labels
    other = places[1]._replace(cause=Cause.ANTICIPATED)
    assert write_reserved([places[0], other], coming_back(text)) == text
    (rest,) = coming_back(write_reserved(places[:1], coming_back(text))).values()
    assert (rest.until, rest.like, rest.nodes) == (held.until, held.like, {"x": 1})


def test_what_cannot_be_read_is_not_written() -> None:
    """Nobody knows what room a pod has whose request is none."""
    found = cluster(moved(), *pods(1, node="n", asks={"cpu": "much"}))
    slot = SlotAt(LEAF, "x", Cause.MOVE)
    one = Departure((), tuple(found.pods), "", None, "", 0, slots=((Key("ns", "g"), (slot,)),))

    ((_, text),) = with_holds(one, found, NOW).holds

    assert json.loads(text) == {LEAF: {"nodes": {"x": 1}, "cause": "move"}}


# what the queue and the one above it say -> may a TrainJob in it be moved live; anybody elsewhere
OFFERED: list[Case[tuple[str | None, str | None], tuple[bool, bool]]] = [
    Case("nobody says anything", (None, None), (False, True)),
    Case("its queue does", ("on", None), (True, True)),
    Case("the one above does", (None, "on"), (True, True)),
    Case("its queue says otherwise", ("off", "on"), (False, False)),
    Case("what cannot be meant", ("yes", "on"), (False, False)),
]


@pytest.mark.parametrize("case", OFFERED, ids=ids)
def test_who_may_be_moved(case: Case[tuple[str | None, str | None], tuple[bool, bool]]) -> None:
    """Live, TrainJobs of queues that say so; elsewhere, whoever is not kept from it."""
    own, above = (
        {} if it is None else {"annotations": {"trainer-kai.dev/consolidation": it}}
        for it in case.given
    )
    objects = [node("n"), queue("q", meta=own, parentQueue="top"), queue("top", meta=above)]
    owned = group("g", meta={"ownerReferences": [JOBSET]}, subGroups=[{"name": LEAF}])
    objects += [jobset(suspend=False), trainjob(suspend=False), owned, *pods(node="n")]
    objects += [group("h", minMember=1), pod("h0", "h", node="n")]

    live = encode(cluster(*objects), Terms(now=NOW, moves_unasked=False))
    played = encode(cluster(*objects), Terms(now=NOW))

    assert [unit_of(live, it).may_move for it in ("g", "h")] == [case.want[0], False]
    assert {unit_of(played, it).may_move for it in ("g", "h")} == {case.want[1]}


def test_what_is_left_is_still_known() -> None:
    """One leaf is back and lets its slots go; what the other is like stays written."""
    other = "m-replica-0"
    like = {**LIKE, "count": 1}
    held = {"nodes": {"n": 1}, "cause": "move", "until": "2026-01-05T08:05:00Z", "like": like}
    notes = {"trainer-kai.dev/reserved": json.dumps({LEAF: held, other: held})}
    subs = [{"name": LEAF, "minMember": 1}, {"name": other, "minMember": 1}]
    both = group("g", meta={"ownerReferences": [JOBSET], "annotations": notes}, subGroups=subs)
    back = jobset_pod("g0", "g", node="n")
    found = known(both, jobset(suspend=False), trainjob(suspend=False), back)

    (text,) = read_orders(found, plan(found.snapshot, choose(Choice()))).reserved.values()

    assert {leaf: it.until for leaf, it in coming_back(text).items()} == {other: held["until"]}
    assert coming_back(text)[other].like is not None


@pytest.mark.parametrize(
    "given",
    [
        [moved(record={})],
        [moved(record={}), *pods(meta=GOING, node="n")],
        [jobset("Completed")],
    ],
    ids=["its user suspends it", "while its pods are going", "it is over"],
)
def test_what_nobody_comes_back_to_is_let_go_for_good(given: list[Fields]) -> None:
    """Or it would be held once more when its user resumes it, though others are there by then."""
    found = known(moved(), jobset(), trainjob(), *given)

    made_of_it = plan(found.snapshot, choose(Choice()))
    [order] = read_orders(found, made_of_it).units

    assert (order.group, order.hold, order.let_go) == (Key("ns", "g"), None, "")
    assert (order.binds, order.departures, made_of_it.rejections) == ((), (), ())
