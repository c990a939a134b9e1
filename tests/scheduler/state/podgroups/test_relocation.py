"""A relocated TrainJob has no pods for a while, and keeps its places until they are back."""

import json
from typing import Any

import msgspec
import pytest

from scheduler.core.model.podgroup import ReservationCause, ReservedPlace, podsets_of
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.cache.evictions import with_reserved_annotations
from scheduler.state.commands import PlannedEviction, changed_annotations, commands_from_plan
from scheduler.state.inputs import StateOptions
from scheduler.state.podgroups.podgroup import (
    NamedPlace,
    read_relocations,
    write_reserved,
)
from scheduler.state.snapshot.cluster_state import ClusterState, encode
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    NOW,
    cluster_cache,
    decode_object,
    group,
    jobset_pod,
    make_object,
    node,
    pod,
    podgroup_of,
    queue,
)
from trainer_kai.api.interning import IndexedLabels
from trainer_kai.api.meta import Key
from trainer_kai.api.names import COMPLETION_INDEX
from trainer_kai.api.resources import PODS

Fields = dict[str, Any]

PODSET = "n-replica-0"
POD_TEMPLATE: Fields = {
    "subGroupPrefix": PODSET,
    "replicas": 1,
    "count": 2,
    "requests": {"nvidia.com/gpu": "1"},
}
TERMINATING: Fields = {"deletionTimestamp": "2026-01-05T07:59:59Z"}
RECORD: Fields = {"trainer-kai.dev/evicted-by": json.dumps({"trainJob": "t", "podGroup": "g"})}


def trainjob(*, suspend: bool = True, uid: str = "t") -> Fields:
    """Return the TrainJob, suspended; its PodGroup has the eviction record."""
    return make_object("TrainJob", "j", {"uid": uid}, spec={"suspend": suspend})


def jobset(status: str = "", *, suspend: bool = True) -> Fields:
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "j",
        "uid": "t",
        "controller": True,
    }
    meta = {"uid": "u", "ownerReferences": [owner]}
    spec, state = {"suspend": suspend}, {"terminalState": status}
    return make_object("JobSet", "j", meta, spec=spec, status=state)


def relocating_podgroup(
    until: str = "2026-01-05T08:05:00Z",
    *,
    like: Fields | None = POD_TEMPLATE,
    record: Fields = RECORD,
) -> Fields:
    """Return its PodGroup, with two reserved places on the node "n" and an eviction record."""
    reserved = {"nodes": {"n": 2}, "cause": "move", "until": until, "like": like}
    text = json.dumps({PODSET: {name: it for name, it in reserved.items() if it}})
    notes = {"trainer-kai.dev/reserved": text, **record}
    meta = {"ownerReferences": [JOBSET], "annotations": notes}
    return group("g", meta=meta, subGroups=[{"name": PODSET, "minMember": 2}])


def pods(count: int = 2, **more: Any) -> list[Fields]:
    return [jobset_pod(f"g{i}", "g", **more) for i in range(count)]


def reserved_places(encoded: EncodedSnapshot) -> list[ReservedPlace]:
    podsets = [
        podset for podgroup in encoded.snapshot.podgroups for podset in podsets_of(podgroup.tree)
    ]
    return [place for podset in podsets for place in podset.reserved_places]


def snapshot_of(*objects: Fields) -> EncodedSnapshot:
    """Encode objects, with a queue and a node of eight GPUs."""
    return encode(cluster_cache(node("n"), queue(), *objects), StateOptions(now=NOW))


RESERVED_CASES: list[Case[list[Fields], int]] = [
    Case("while its pods are going", [*pods(meta=TERMINATING, node="n")], 2),
    Case("when they are gone", [], 2),
    Case("when it is resumed", [trainjob(suspend=False)], 2),
    Case("when its JobSet is as well", [trainjob(suspend=False), jobset(suspend=False)], 2),
    Case("while some are back", [trainjob(suspend=False), jobset(suspend=False), *pods(1)], 2),
    Case("until all are there", [trainjob(suspend=False), *pods(node="n")], 0),
    Case("not if its user suspends it", [relocating_podgroup(record={})], 0),
    Case("nor if another one of its name is suspended", [trainjob(uid="another")], 0),
    Case("nor if it is over", [jobset("Completed")], 0),
    Case("nor longer than it was to be", [relocating_podgroup("2026-01-05T08:00:00Z")], 0),
    Case("nor until an invalid time", [relocating_podgroup("soon")], 0),
    Case("nor if its pods are unknown", [relocating_podgroup(like=None)], 0),
]


@pytest.mark.parametrize("case", RESERVED_CASES, ids=ids)
def test_its_places_stay_reserved(case: Case[list[Fields], int]) -> None:
    """They occupy the node like pods, and are charged to its queue."""
    encoded = snapshot_of(relocating_podgroup(), jobset(), trainjob(), *case.given)

    assert [place.cause for place in reserved_places(encoded)] == [
        ReservationCause.MOVE
    ] * case.want
    placed = [it for it in case.given if it["kind"] == "Pod" and it["spec"]["nodeName"]]
    releasing = [it for it in placed if "deletionTimestamp" in it["metadata"]]
    assert encoded.snapshot.nodes.idle[0, -1] == 1000 * (8 - case.want - len(placed))
    assert encoded.snapshot.nodes.releasing[0, -1] == 1000 * len(releasing)
    has = case.want + len(placed) - len(releasing)
    assert encoded.snapshot.queues.allocated[0, -1] == 1000 * has


def test_it_is_not_evictable_meanwhile() -> None:
    """It has no pods that could be evicted, only reserved places."""
    podgroup = podgroup_of(snapshot_of(relocating_podgroup(), jobset(), trainjob()), "g")

    assert podgroup.non_evictable_reason == "the PodGroup is being relocated"
    assert (podgroup.has_running, podgroup.prefilter_failure) == (True, None)


def test_it_is_brought_up_to_date() -> None:
    """Whatever the order of the events, the state equals that of a fresh start."""
    state, reserved = ClusterState(StateOptions(now=NOW)), list[int]()

    def put(*objects: Fields, now: int = NOW) -> None:
        for fields in objects:
            state.put(*decode_object(fields))
        reserved.append(len(reserved_places(state.snapshot(now))))
        state.check(now)

    put(node("n"), queue(), relocating_podgroup(), trainjob(), jobset())
    put(relocating_podgroup(record={}))
    put(relocating_podgroup())
    put(trainjob(suspend=False))
    put(jobset(suspend=False), *pods(1))
    put(*pods(2, node="n"))
    state.put(PODS, Key("ns", "g0"), None)
    state.put(PODS, Key("ns", "g1"), None)
    put(now=NOW + 299)
    put(now=NOW + 300)
    put(now=NOW + 1)
    put(group("g", meta={"ownerReferences": [JOBSET]}, minMember=2))

    assert reserved == [2, 0, 2, 2, 2, 0, 2, 0, 2, 0]


def test_each_podset_is_awaited_until_its_own_deadline() -> None:
    """The places of the PodSet that expires first are released first, then those of the other."""
    state, reserved = ClusterState(StateOptions(now=NOW)), list[int]()
    podsets = {
        f"{name}-replica-0": {
            "nodes": {"n": 1},
            "cause": "move",
            "until": f"2026-01-05T08:0{minute}:00Z",
            "like": {**POD_TEMPLATE, "count": 1},
        }
        for name, minute in (("n", 1), ("m", 2))
    }
    notes = {"trainer-kai.dev/reserved": json.dumps(podsets), **RECORD}
    subs = [{"name": name, "minMember": 1} for name in podsets]
    both = group("g", meta={"ownerReferences": [JOBSET], "annotations": notes}, subGroups=subs)
    for fields in (node("n"), queue(), both, trainjob(), jobset()):
        state.put(*decode_object(fields))
    for now in (NOW, NOW + 60, NOW + 120, NOW + 60):
        reserved.append(len(reserved_places(state.snapshot(now))))
        state.check(now)

    assert reserved == [2, 1, 0, 1]


def test_the_annotation_of_a_relocation() -> None:
    """It has each PodSet and its deadline; the rest is kept when some places are released."""
    cluster = cluster_cache(relocating_podgroup(), *pods(2, node="n", nodeSelector={"a": "b"}))
    for key, it in cluster.pods.items():  # as a watch decodes them
        labels = IndexedLabels({**it.metadata.labels, COMPLETION_INDEX: ""}, key.name)
        meta = msgspec.structs.replace(it.metadata, labels=labels)
        cluster.pods[key] = msgspec.structs.replace(it, metadata=meta)
    places = tuple(NamedPlace(PODSET, name, ReservationCause.MOVE) for name in ("x", "y"))
    one = PlannedEviction(
        (Key("ns", "g"),),
        tuple(cluster.pods),
        "consolidation",
        None,
        "",
        0,
        places=((Key("ns", "g"), places),),
    )

    ((key, text),) = with_reserved_annotations(one, cluster, NOW).reserved_annotations

    (reserved,) = read_relocations(text).values()
    assert (key.name, reserved.until, reserved.nodes) == (
        "g",
        "2026-01-05T08:05:00Z",
        {"x": 1, "y": 1},
    )
    assert reserved.like is not None
    assert (reserved.like.count, reserved.like.node_selector) == (2, {"a": "b"})
    assert reserved.like.requests == {"nvidia.com/gpu": "1"}
    assert reserved.like.labels["kai.scheduler/subgroup-name"] == PODSET
    assert COMPLETION_INDEX not in reserved.like.labels
    other = places[1]._replace(cause=ReservationCause.ANTICIPATED)
    assert write_reserved([places[0], other], read_relocations(text)) == text
    (rest,) = read_relocations(write_reserved(places[:1], read_relocations(text))).values()
    assert (rest.until, rest.like, rest.nodes) == (reserved.until, reserved.like, {"x": 1})


def test_what_cannot_be_read_is_not_written() -> None:
    """How much a pod with an invalid request needs is unknown."""
    cluster = cluster_cache(relocating_podgroup(), *pods(1, node="n", asks={"cpu": "much"}))
    place = NamedPlace(PODSET, "x", ReservationCause.MOVE)
    one = PlannedEviction(
        (), tuple(cluster.pods), "", None, "", 0, places=((Key("ns", "g"), (place,)),)
    )

    ((_, text),) = with_reserved_annotations(one, cluster, NOW).reserved_annotations

    assert json.loads(text) == {PODSET: {"nodes": {"x": 1}, "cause": "move"}}


# annotation of the queue and of its parent -> may a TrainJob be relocated live; any elsewhere
CONSOLIDATION_CASES: list[Case[tuple[str | None, str | None], tuple[bool, bool]]] = [
    Case("neither is set", (None, None), (False, True)),
    Case("its queue does", ("on", None), (True, True)),
    Case("the one above does", (None, "on"), (True, True)),
    Case("its queue says otherwise", ("off", "on"), (False, False)),
    Case("what cannot be meant", ("yes", "on"), (False, False)),
]


@pytest.mark.parametrize("case", CONSOLIDATION_CASES, ids=ids)
def test_which_podgroups_may_be_consolidated(
    case: Case[tuple[str | None, str | None], tuple[bool, bool]],
) -> None:
    """Live: TrainJobs of queues that allow it; elsewhere: all that no queue excludes."""
    own, above = (
        {} if it is None else {"annotations": {"trainer-kai.dev/consolidation": it}}
        for it in case.given
    )
    objects = [node("n"), queue("q", meta=own, parentQueue="top"), queue("top", meta=above)]
    owned = group("g", meta={"ownerReferences": [JOBSET]}, subGroups=[{"name": PODSET}])
    objects += [jobset(suspend=False), trainjob(suspend=False), owned, *pods(node="n")]
    objects += [group("h", minMember=1), pod("h0", "h", node="n")]

    cache = encode(cluster_cache(*objects), StateOptions(now=NOW, relocates_by_default=False))
    played = encode(cluster_cache(*objects), StateOptions(now=NOW))

    assert [podgroup_of(cache, it).may_relocate for it in ("g", "h")] == [case.want[0], False]
    assert {podgroup_of(played, it).may_relocate for it in ("g", "h")} == {case.want[1]}


def test_the_remaining_relocation_stays_written() -> None:
    """One PodSet is back and its places are released; what the other is like stays written."""
    other = "m-replica-0"
    like = {**POD_TEMPLATE, "count": 1}
    reserved = {"nodes": {"n": 1}, "cause": "move", "until": "2026-01-05T08:05:00Z", "like": like}
    notes = {"trainer-kai.dev/reserved": json.dumps({PODSET: reserved, other: reserved})}
    subs = [{"name": PODSET, "minMember": 1}, {"name": other, "minMember": 1}]
    both = group("g", meta={"ownerReferences": [JOBSET], "annotations": notes}, subGroups=subs)
    back = jobset_pod("g0", "g", node="n")
    encoded = snapshot_of(both, jobset(suspend=False), trainjob(suspend=False), back)

    made = plan(encoded.snapshot, build_policies(PolicySelection()))
    ((_, text),) = changed_annotations(encoded, made)

    assert {podset: it.until for podset, it in read_relocations(text).items()} == {
        other: reserved["until"]
    }
    assert read_relocations(text)[other].like is not None


@pytest.mark.parametrize(
    "given",
    [
        [relocating_podgroup(record={})],
        [relocating_podgroup(record={}), *pods(meta=TERMINATING, node="n")],
        [jobset("Completed")],
    ],
    ids=["its user suspends it", "while its pods are going", "it is over"],
)
def test_abandoned_reservations_are_released_for_good(given: list[Fields]) -> None:
    """Else they would be reserved again when its user resumes it, though others use them now."""
    encoded = snapshot_of(relocating_podgroup(), jobset(), trainjob(), *given)

    made_of_it = plan(encoded.snapshot, build_policies(PolicySelection()))
    [order] = commands_from_plan(encoded, made_of_it).podgroups

    assert (order.group, order.reserve_annotation, order.release_annotation) == (
        Key("ns", "g"),
        None,
        "",
    )
    assert (order.binds, order.evictions, made_of_it.rejections) == ((), (), ())
