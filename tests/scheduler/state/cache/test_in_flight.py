"""PodGroups that are relocated: evicted, with reserved places elsewhere."""

import json
from typing import Any

import pytest

from scheduler.core.model.podgroup import PodSet, ReservationCause, podsets_of
from scheduler.core.model.resources import NONE
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.commands import changed_annotations, commands_from_plan
from scheduler.state.inputs import StateOptions
from scheduler.state.podgroups.podgroup import NamedPlace
from scheduler.state.snapshot.cluster_state import encode
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    NOW,
    cluster_cache,
    group,
    jobset_pod,
    make_object,
    node,
    pod,
    queue,
)
from trainer_kai.api.meta import Key

Fields = dict[str, Any]

TERMINATING: Fields = {"deletionTimestamp": "2026-01-05T07:59:59Z"}


def reserving_group(
    count: int, cause: str = "move", *, least: int = 1, meta: Fields | None = None
) -> Fields:
    """Return a PodGroup that reserves so many places on the node "n"."""
    text = json.dumps({"default": {"nodes": {"n": count}, "cause": cause}})
    found = {"annotations": {"trainer-kai.dev/reserved": text}, **(meta or {})}
    return group("g", meta=found, minMember=least)


def pods(count: int, **more: Any) -> list[Fields]:
    return [pod(f"g{i}", "g", **more) for i in range(count)]


def encoded(*objects: Fields) -> EncodedSnapshot:
    """Encode objects, with a queue and a node of eight GPUs."""
    return encode(cluster_cache(node("n"), queue("q"), *objects), StateOptions(now=NOW))


CASES: list[Case[list[Fields], int]] = [
    Case("before its pods are gone", [reserving_group(2), *pods(2, node="n", meta=TERMINATING)], 2),
    Case("when they are back", [reserving_group(2), *pods(2)], 2),
    Case("also those that it could spare", [reserving_group(3, least=1), *pods(3)], 3),
    Case("not for pods that there are not", [reserving_group(3, least=1), *pods(2)], 2),
    Case("but for all that it needs", [reserving_group(3, least=3), *pods(1)], 3),
    Case("until they are there", [reserving_group(2), *pods(2, node="n")], 0),
    Case("not for any other cause", [reserving_group(2, "repair"), *pods(2)], 0),
    Case("nor if no pods are left", [reserving_group(2)], 0),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_its_places_stay_reserved(case: Case[list[Fields], int]) -> None:
    """Though it has no pods."""
    snapshot = encoded(*case.given).snapshot

    places = [
        place
        for podgroup in snapshot.podgroups
        for podset in podsets_of(podgroup.tree)
        for place in podset.reserved_places
    ]

    assert [place.cause for place in places] == [ReservationCause.MOVE] * case.want
    releasing = sum("deletionTimestamp" in it["metadata"] for it in case.given)
    running = sum(bool(it.get("spec", {}).get("nodeName")) for it in case.given)
    assert snapshot.nodes.idle[0, -1] == 1000 * (8 - case.want - running)
    assert snapshot.nodes.releasing[0, -1] == 1000 * releasing


def test_a_suspended_podgroup_reserves_nothing() -> None:
    """It has to be placed again when it is resumed."""
    text = json.dumps({"n-replica-0": {"nodes": {"n": 1}, "cause": "move"}})
    meta = {"ownerReferences": [JOBSET], "annotations": {"trainer-kai.dev/reserved": text}}
    subs = [{"name": "n-replica-0", "minMember": 1}]

    def idle(*, suspend: bool) -> int:
        jobset = make_object("JobSet", "j", {"uid": "u"}, spec={"suspend": suspend})
        owned = group("g", meta=meta, subGroups=subs)
        return int(encoded(owned, jobset, jobset_pod("a", "g", "n")).snapshot.nodes.idle[0, -1])

    assert (idle(suspend=True), idle(suspend=False)) == (8000, 7000)


def test_its_pods_take_its_places() -> None:
    """No other pod does, though it is older."""
    first = {"creationTimestamp": "2026-01-05T07:00:00Z"}
    younger = {"creationTimestamp": "2026-01-05T07:30:00Z"}
    other = [group("r", meta=first, minMember=1), pod("r0", "r", asks={"nvidia.com/gpu": "8"})]
    found = encoded(reserving_group(2, meta=younger), *pods(2), *other)

    made = plan(found.snapshot, build_policies(PolicySelection()))

    commands = commands_from_plan(found, made)

    assert [it.pod.name for it in commands.binds] == ["g0", "g1"]
    assert dict(changed_annotations(found, made)) == {Key("ns", "g"): ""}


def test_only_groups_reserve_places() -> None:
    """For a standalone pod there is no PodGroup to annotate."""
    (standalone, record) = sorted(
        encoded(group("g", minMember=1), pod("g0", "g"), pod("p")).snapshot.podgroups,
        key=lambda podgroup: podgroup.can_reserve,
    )
    assert (standalone.can_reserve, record.can_reserve) == (False, True)


def fragmented(*more: Fields) -> EncodedSnapshot:
    """Return two nodes with a PodGroup on each, and a pending one that needs a whole node."""
    objects = [node("m", gpu=4), node("n", gpu=4), queue("q"), *more]
    for name, at in (("a", "m"), ("b", "n")):
        objects += [group(name, minMember=1), pod(f"{name}0", name, node=at)]
    objects += [group("c", minMember=1), pod("c0", "c", asks={"nvidia.com/gpu": "4"})]
    return encode(cluster_cache(*objects), StateOptions(now=NOW))


def test_the_commands_of_a_relocation() -> None:
    """The eviction has the places, to be written before it."""
    found = fragmented()

    made = plan(found.snapshot, build_policies(PolicySelection()))

    commands = commands_from_plan(found, made)

    assert [(it.pods, it.action, it.preemptor) for it in commands.evictions] == [
        ((Key("ns", "b0"),), "consolidation", Key("ns", "c"))
    ]
    text = '{"default":{"nodes":{"m":1},"cause":"move"}}'
    assert dict(changed_annotations(found, made)) == {Key("ns", "b"): text}
    (one,) = commands.podgroups
    assert (one.group, one.reserve_annotation) == (Key("ns", "c"), None)
    assert [it.places for it in one.evictions] == [
        ((Key("ns", "b"), (NamedPlace("default", "m", ReservationCause.MOVE),)),)
    ]


def test_a_fully_evicted_podgroup_reserves_nothing() -> None:
    """A PodGroup that is being relocated may lose its places, too."""
    rich = queue("rich", meta={"creationTimestamp": "2026-01-05T07:00:00Z"})
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 0}
    poor = queue("q", resources={"gpu": {**free, "quota": 0}, "cpu": free, "memory": free})
    preemptor = make_object("PodGroup", "c", {"uid": "c"}, spec={"queue": "rich", "minMember": 1})
    releasing = pods(2, node="n", meta=TERMINATING)
    objects = [node("n"), rich, poor, reserving_group(2), *releasing, preemptor]
    objects.append(pod("c0", "c", asks={"nvidia.com/gpu": "8"}))
    found = encode(cluster_cache(*objects), StateOptions(now=NOW))
    (row,) = [i for i, key in enumerate(found.podgroup_keys) if key.name == "g"]

    answer = plan(found.snapshot, build_policies(PolicySelection()))

    assert [it.podgroups for it in answer.evictions] == [(row,)]
    assert dict(changed_annotations(found, answer)) == {Key("ns", "g"): ""}


@pytest.mark.parametrize(("running", "spares"), [(2, True), (1, False)])
def test_pods_have_rows_where_succeeded_ones_exceed_the_minimum(
    *, running: int, spares: bool
) -> None:
    """One pod has succeeded, and the minimum is two: of two running pods one may go."""
    done = pod("done", "g", node="n", phase="Succeeded")
    (podgroup,) = encoded(
        group("g", minMember=2), *pods(running, node="n"), done
    ).snapshot.podgroups
    assert bool(*[podset.running_pods for podset in podsets_of(podgroup.tree)]) is spares


def test_pods_have_rows_where_podsets_differ() -> None:
    """By PodSet, so that it is known what each PodSet needs again."""
    subs = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}]
    found = encoded(
        group("g", subGroups=subs), pod("a", "g", "x", node="n"), pod("b", "g", "y", node="n")
    )
    (podgroup,) = found.snapshot.podgroups

    names = {
        podset.name: [found.pod_keys[it].name for it in podset.running_pods]
        for podset in podsets_of(podgroup.tree)
    }

    assert names == {"x": ["a"], "y": ["b"]}
    assert all(isinstance(podset, PodSet) for podset in podsets_of(podgroup.tree))
    assert NONE not in found.snapshot.pods.node[found.snapshot.pods.podgroup == 0]
