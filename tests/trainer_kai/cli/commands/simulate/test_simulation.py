"""The JSON document of `trainer-kai simulate`, field by field."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Plan, PodGroupAllocation, PodPlacement, Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from tests.support.workloads.simulate_objects import (
    bind_request,
    group,
    node,
    pod,
    queue,
    resource_reservation_pod,
    staged_trainjob,
)
from trainer_kai.api.scheduler_names import ACTIONS
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

NOW = "2026-01-05T09:00:00Z"
GOING: dict[str, Any] = {"deletionTimestamp": NOW}
Document = dict[str, Any]


def gang(name: str, members: int, gpus: int = 1, queue: str = "team-a") -> list[Document]:
    return [
        group(name, members, queue),
        *(pod(f"{name}-{i}", name, gpus) for i in range(members)),
    ]


SITE = [queue("team-a", creationTimestamp=NOW), node("n1", 4), node("n2", 4)]
RESERVED = pod("old", "g", 4, on="n1", **GOING)


def bound(document: Document, cycle: int = 0) -> dict[str, str]:
    return {it["pod"]: it["node"] for it in document["cycles"][cycle]["binds"]}


def nominated(document: Document, cycle: int = 0) -> dict[str, str]:
    return {it["pod"]: it["node"] for it in document["cycles"][cycle]["nominations"]}


def state(document: Document, name: str) -> Document:
    (found,) = (it for it in document["pods"] if it["name"] == name)
    return {name: it for name, it in found.items() if name not in {"namespace", "name"}}


WHOLE: Document = {
    "schema": "trainer-kai/simulate/v1",
    "cycles": [
        {
            "binds": [
                {"namespace": "default", "pod": "a-0", "node": "n1", "gpuGroups": []},
                {"namespace": "default", "pod": "a-1", "node": "n2", "gpuGroups": []},
            ],
            "evictions": [],
            "nominations": [],
            "reservations": [],
            "unschedulable": [{"namespace": "default", "podGroup": "b", "reason": "NoNodeMatches"}],
        }
    ],
    "pods": [
        {"namespace": "default", "name": name, "phase": phase, "node": at, "gpuGroups": []}
        for name, phase, at in (
            ("a-0", "Running", "n1"),
            ("a-1", "Running", "n2"),
            ("b-0", "Pending", ""),
        )
    ],
    "podGroups": [
        {
            "namespace": "default",
            "name": "a",
            "queue": "team-a",
            "lastStartTimestamp": NOW,
            "verdict": "",
        },
        {
            "namespace": "default",
            "name": "b",
            "queue": "team-a",
            "lastStartTimestamp": "",
            "verdict": "NoNodeMatches",
        },
    ],
    "queues": [
        {
            "name": "team-a",
            "fairShare": {"cpu": 0, "memory": 0, "gpu": 8},
            "allocated": {"cpu": 0, "memory": 0, "gpu": 6},
            "requested": {"cpu": 0, "memory": 0, "gpu": 11},
        }
    ],
    "nodes": [
        {"name": "n1", "idleGpus": 1, "releasingGpus": 0},
        {"name": "n2", "idleGpus": 1, "releasingGpus": 0},
    ],
    "unusableGpus": {
        "idle": 2,
        "byCause": {"node_too_small": 2},
        "nodes": [
            {"name": "n1", "byCause": {"node_too_small": 1}},
            {"name": "n2", "byCause": {"node_too_small": 1}},
        ],
    },
}


def test_the_whole_document() -> None:
    """Every field, of a cluster in which one PodGroup starts and one waits."""
    document = simulate([*SITE, *gang("a", 2, 3), *gang("b", 1, 5)])

    refused = document["cycles"][0]["unschedulable"]
    message = refused[0].pop("message")
    assert "5 GPU" in message
    assert document == WHOLE


def test_the_order_of_objects_changes_no_byte() -> None:
    """Neither of files nor of lists."""
    objects = [
        *SITE,
        *gang("a", 2, 3),
        *gang("b", 4),
        RESERVED,
        bind_request("b-1", "n2"),
        resource_reservation_pod(),
    ]
    first = json.dumps(simulate(objects, SimulationOptions(cycles=2)))

    for seed in range(5):
        other = random.Random(seed).sample(objects, len(objects))
        assert json.dumps(simulate(other, SimulationOptions(cycles=2))) == first


def test_objects_are_left_as_they_are() -> None:
    """They can be asked about again."""
    objects = [*SITE, *gang("a", 2), {**node("n3"), "metadata": {"name": "n3"}}]
    before = json.dumps(objects)

    assert simulate(objects) == simulate(objects)
    assert json.dumps(objects) == before


def test_later_cycles_of_a_stable_cluster_are_quiet() -> None:
    """Nothing is bound, evicted or nominated twice."""
    document = simulate([*SITE, *gang("a", 2, 3), *gang("b", 9)], SimulationOptions(cycles=4))

    assert bound(document)
    for cycle in document["cycles"][1:]:
        assert (cycle["binds"], cycle["evictions"], cycle["nominations"]) == ([], [], [])
        assert [it["podGroup"] for it in cycle["unschedulable"]] == ["b"]


def test_who_was_going_is_gone_and_comes_back() -> None:
    """The nominated pod is bound in the next cycle, and the other waits in its place."""
    objects = [queue("team-a"), node("n1", 4), group("g"), RESERVED, *gang("a", 1, 4)]

    document = simulate(objects, SimulationOptions(cycles=2))

    assert nominated(document) == {"a-0": "n1"}
    assert bound(document, 1) in ({"a-0": "n1"}, {"old": "n1"})
    assert {state(document, name)["phase"] for name in ("a-0", "old")} == {"Running", "Pending"}


def test_who_was_going_may_stay() -> None:
    """Then it is Releasing, and pods that wait for its room go on waiting."""
    objects = [queue("team-a"), node("n1", 4), group("g"), RESERVED, *gang("a", 1, 4)]

    document = simulate(objects, SimulationOptions(cycles=2, terminating_pods="keep"))

    assert nominated(document) == nominated(document, 1) == {"a-0": "n1"}
    assert state(document, "old") == {"phase": "Releasing", "node": "n1", "gpuGroups": []}
    assert state(document, "a-0") == {"phase": "Pending", "node": "", "gpuGroups": []}


def test_nodes_and_queues_are_those_of_the_end_of_the_last_cycle() -> None:
    """With no eviction finished: a nominated pod takes from the releasing room."""
    objects = [queue("team-a"), node("n1", 4), group("g"), RESERVED, *gang("a", 1, 3)]

    document = simulate(objects)

    assert document["nodes"] == [{"name": "n1", "idleGpus": 0, "releasingGpus": 1}]
    (team,) = document["queues"]
    assert (team["allocated"]["gpu"], team["requested"]["gpu"]) == (0, 0)


def test_who_is_nominated_to_idle_room_too_takes_both() -> None:
    """Neither is negative, nor reported as free."""
    old = pod("old", "g", 2, on="n1", **GOING)

    def left(gpus: int) -> Any:
        objects = [queue("team-a"), node("n1", 4), group("g"), old, *gang("a", 1, gpus)]
        return simulate(objects)["nodes"]

    assert left(4) == [{"name": "n1", "idleGpus": 0, "releasingGpus": 0}]
    assert left(3) == [{"name": "n1", "idleGpus": 1, "releasingGpus": 0}]


def test_a_reserved_place_takes_what_is_being_released_before_it_is_below_zero() -> None:
    """The launcher's, beside workers that are nominated."""
    going = pod("old", "g", 4, on="n1", **GOING)

    document = simulate([queue("team-a"), node("n1", 4), group("g"), going, *staged_trainjob()])

    assert document["cycles"][0]["reservations"]
    assert document["nodes"] == [{"name": "n1", "idleGpus": 0, "releasingGpus": 0}]


def test_reserved_places_of_nominated_podgroups_are_held_too() -> None:
    """Until the nomination is dropped: then they are written down no more."""
    objects = [queue("team-a"), node("n1", 4), group("g"), pod("old", "g", 1, on="n1", **GOING)]
    options = SimulationOptions(cycles=2, terminating_pods="keep")

    document = simulate([*objects, node("n0", 0), *staged_trainjob()], options)

    assert nominated(document) == nominated(document, 1) != {}
    for cycle in document["cycles"]:
        assert [(it["node"], it["count"]) for it in cycle["reservations"]] == [("n1", 1)]
    assert document["queues"][0]["allocated"]["gpu"] == 1


class Watcher:
    """A planner that records the nominated nodes before each plan."""

    def __init__(self) -> None:
        self.nominated: list[int] = []

    def __call__(self, snapshot: Snapshot, policies: Policies) -> Plan:
        rows = snapshot.pods.signature[snapshot.pods.podgroup != NONE]
        signatures = [snapshot.signatures[signature] for signature in rows]
        self.nominated.append(sum(signature.nominated_node >= 0 for signature in signatures))
        return plan(snapshot, policies)


@pytest.mark.parametrize(("option", "seen"), [("drop", [0, 0]), ("keep", [0, 1])])
def test_a_nomination_leaves_nothing_behind_unless_it_is_kept(option: Any, seen: list[int]) -> None:
    """Kept it is what production keeps: an input of the next plan."""
    watcher = Watcher()
    objects = [queue("team-a"), node("n1", 4), group("g"), RESERVED, *gang("a", 1, 4)]
    options = SimulationOptions(cycles=2, nominations=option, terminating_pods="keep")

    simulate(objects, options, watcher)

    assert watcher.nominated == seen


def test_another_planner_may_decide() -> None:
    """What it decides comes to pass, whatever it is."""

    def onto_the_last(snapshot: Snapshot, policies: Policies) -> Plan:
        nothing = plan(snapshot, policies)
        there = PodGroupAllocation(
            0, binds=(PodPlacement(0, len(snapshot.nodes.names) - 1),), is_start=True
        )
        return Plan((there,), (), nothing.fair_share)

    document = simulate([*SITE, *gang("a", 1)], planner=onto_the_last)

    assert bound(document) == {"a-0": "n2"}
    assert document["podGroups"][0]["lastStartTimestamp"] == NOW


def test_reserved_places_are_held_for_pods_that_come_later() -> None:
    """In this cycle and in all that follow, as long as their pods do not exist."""
    document = simulate([*SITE, *staged_trainjob()], SimulationOptions(cycles=3))

    reserved = {
        "namespace": "default",
        "podGroup": "pg-job-UID",
        "subGroup": "launcher-replica-0",
        "count": 1,
        "cause": "anticipated",
    }
    assert len(bound(document)) == 3
    for cycle in document["cycles"]:
        (reserved_place,) = cycle["reservations"]
        assert reserved_place.pop("node") in {"n1", "n2"}
        assert reserved_place == reserved
    assert sum(it["idleGpus"] for it in document["nodes"]) == 4
    assert document["queues"][0]["allocated"]["gpu"] == 4


def test_a_trainjob_without_room_waits_whole() -> None:
    """Its launcher counts although it does not exist."""
    document = simulate([queue("team-a"), node("n1", 3), *staged_trainjob()])

    assert not bound(document)
    (waits,) = document["cycles"][0]["unschedulable"]
    assert (waits["podGroup"], waits["reason"]) == ("pg-job-UID", "NoCapacity")


def shared(name: str, **more: Any) -> Document:
    """Return a pod that has half a device."""
    it = pod(name, "g", 0, **more)
    it["metadata"]["annotations"]["gpu-fraction"] = "0.5"
    return it


def test_shared_devices_keep_their_names() -> None:
    """A pod has as many as it requests; one with a whole GPU has none, whatever its labels say."""
    one = shared("one", on="n1", labels={"runai-gpu-group": "x"})
    more = shared("more", on="n1", labels={"runai-gpu-group/y": "y", "runai-gpu-group/x": "x"})
    more["metadata"]["annotations"]["gpu-fraction-num-devices"] = "2"
    named = shared("named", on="n1", labels={"runai-gpu-group/y": "y", "runai-gpu-group": "x"})
    whole = pod("whole", "g", on="n1", labels={"runai-gpu-group": "x"})

    document = simulate([*SITE, group("g"), one, more, named, whole])

    assert state(document, "one")["gpuGroups"] == ["x"]
    assert state(document, "more")["gpuGroups"] == ["x", "y"]
    assert state(document, "named")["gpuGroups"] == ["x"]
    assert state(document, "whole")["gpuGroups"] == []


PHASES: Sequence[tuple[Document, str]] = [
    (pod("p", "g"), "Pending"),
    (pod("p", "g", on="n1", phase="Pending"), "Running"),
    (pod("p", "g", on="n1", phase="Succeeded"), "Succeeded"),
    (pod("p", "g", phase="Failed"), "Failed"),
]


@pytest.mark.parametrize(("result", "phase"), PHASES)
def test_phases(result: Document, phase: str) -> None:
    """As a pod is after the last cycle; the PodGroup has no queue here, so no pod is bound."""
    document = simulate([node("n1"), group("g", 1, "none"), result])

    assert state(document, "p")["phase"] == phase


def test_the_clock_is_that_of_the_input_and_stands_still() -> None:
    """Unless another time is given."""
    result = simulate([*SITE, *gang("a", 1)], SimulationOptions(now=0, cycles=2))

    assert result["podGroups"][0]["lastStartTimestamp"] == "1970-01-01T00:00:00Z"


def test_who_is_whole_is_not_noted_as_short_any_more() -> None:
    """The pod that was going is gone later: only then the grace begins, and it is not over."""
    note = {"kai.scheduler/stale-podgroup-timestamp": "2026-01-05T08:00:00Z"}
    short = group("g", 2)
    short["metadata"]["annotations"] = note
    there = pod("there", "g", on="n1")

    lost = simulate([*SITE, short, there])
    going = simulate([*SITE, node("bare", 0), short, there, pod("old", "g", on="n1", **GOING)])
    next_document = simulate(
        [*SITE, short, there, pod("old", "g", 9, on="n1", **GOING)], SimulationOptions(cycles=3)
    )

    assert [it["pod"] for it in lost["cycles"][0]["evictions"]] == ["there"]
    assert (
        "the PodGroup had fewer pods than its minimum for too long"
        in lost["cycles"][0]["evictions"][0]["reason"]
    )
    assert going["cycles"][0]["evictions"] == []
    assert [cycle["evictions"] for cycle in next_document["cycles"]] == [[], [], []]


def test_stuck_pods_release_nothing() -> None:
    """The threshold is an option."""
    late = SimulationOptions(now=1767603600 + 200)
    objects = [queue("team-a"), node("n1", 4), group("g"), RESERVED, *gang("a", 1, 4)]

    assert not nominated(simulate(objects, late))
    patient = SimulationOptions(now=1767603600 + 200, stuck_in_releasing_s=300)
    assert nominated(simulate(objects, patient))


def test_nobody_waits_for_a_pod_longer_than_is_allowed() -> None:
    """Whatever it asks for: by default for an hour after its deletion was asked for."""
    slow = {**GOING, "deletionGracePeriodSeconds": 7200}
    reserved = pod("held", "g", on="n1", gpus=4, **slow)
    objects = [queue("team-a"), node("n1", 4), group("g"), reserved, *gang("a", 1, 4)]

    in_time, late = (1767603600 + more for more in (-3600 + 120, -3600 + 121))
    assert nominated(simulate(objects, SimulationOptions(now=in_time)))
    assert not nominated(simulate(objects, SimulationOptions(now=late)))
    assert nominated(simulate(objects, SimulationOptions(now=late, max_termination_grace_s=3601)))


def lost(document: Document) -> dict[str, str]:
    """Return by which action each pod is evicted."""
    return {it["pod"]: it["action"] for it in document["cycles"][0]["evictions"]}


def borrowed(idle: int) -> list[Document]:
    """Return a node of which team-b wants four GPUs back; so many are idle."""
    theirs = [it for i in range(4) for it in (group(f"g{i}"), pod(f"g{i}-0", f"g{i}", on="n1"))]
    queues = [queue("team-a", 0), queue("team-b", 4)]
    return [*queues, node("n1", 4 + idle), *theirs, *gang("back", 1, 4, "team-b")]


@pytest.mark.parametrize("actions", [("reclaim",), ("reclaim", "preempt"), ("preempt", "reclaim")])
def test_without_allocate_others_still_give_back(actions: tuple[str, ...]) -> None:
    """Whatever order the actions are named in."""
    both = simulate(borrowed(2), SimulationOptions(actions=("allocate", *actions)))

    found = simulate(borrowed(2), SimulationOptions(actions=actions))

    assert lost(found) == {"g2-0": "reclaim", "g3-0": "reclaim"}
    assert found == both


def test_without_allocate_a_podgroup_that_there_is_room_for_takes_nothing() -> None:
    """Nothing is evicted for it, and it is not bound."""
    cycle = simulate(borrowed(4), SimulationOptions(actions=("reclaim",)))["cycles"][0]

    assert {name: cycle[name] for name in ("binds", "evictions", "nominations")} == {
        "binds": [],
        "evictions": [],
        "nominations": [],
    }


def test_without_allocate_it_is_reported_why_podgroups_wait() -> None:
    """As with it."""
    cycle = simulate([*SITE, *gang("a", 3, 4)], SimulationOptions(actions=("preempt",)))["cycles"][
        0
    ]

    assert [it["reason"] for it in cycle["unschedulable"]] == ["NoCapacity"]


def test_stats_are_there_only_if_asked_for() -> None:
    """They are what differs from one run to the next."""
    document = simulate([*SITE, *gang("a", 1)], SimulationOptions(cycles=2, stats=True))

    stats = document["stats"]
    assert set(stats) == {"load_s", "cycles"}
    assert len(stats["cycles"]) == 2
    assert set(stats["cycles"][0]) == {"plan_s", "actions", "simulations", "cut"}
    assert tuple(stats["cycles"][0]["actions"]) == ACTIONS
    assert "stats" not in simulate(SITE)


def test_numbers_have_three_decimals_at_most() -> None:
    """And none where they are whole."""
    slow = pod("p", "g", 0)
    slow["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1500m", "memory": "1Ki"}

    document = simulate([*SITE, group("g"), slow])

    assert (
        json.dumps(document["queues"][0]["allocated"]) == '{"cpu": 1.5, "memory": 1024, "gpu": 0}'
    )
