"""Expected pods, and the places that are reserved for them (rules 6, 7 and 12)."""

import json
from typing import Any

import pytest

from scheduler.core.model.podgroup import ReservationCause, podsets_of
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.case import Case, ids
from tests.support.instruction_count import count_instructions
from tests.support.state.objects import (
    JOBSET,
    cluster_cache,
    encode_objects,
    group,
    jobset_pod,
    make_object,
    node,
    pod,
    podgroup_of,
    podset_of,
    prefilter_failure_of,
    signature_of,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import PODS

_SUBS = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 2}]


def _podgroup(reserved: Any = None, *, count: int = 2, **anticipated: Any) -> dict[str, Any]:
    one = {
        "subGroupPrefix": "l-replica-",
        "replicas": 1,
        "count": count,
        "requests": {"nvidia.com/gpu": "2"},
    }
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [{**one, **anticipated}]})}
    if reserved is not None:
        annotations["trainer-kai.dev/reserved"] = (
            reserved if isinstance(reserved, str) else json.dumps(reserved)
        )
    return group(
        "g", meta={"annotations": annotations, "ownerReferences": [JOBSET]}, subGroups=_SUBS
    )


def _reserved(cause: str = "anticipated", **nodes: int) -> dict[str, Any]:
    return {"l-replica-0": {"nodes": nodes, "cause": cause}}


_RUNNING = jobset_pod("n", "g", node="a")
_TERMINATING = {"deletionTimestamp": "2026-01-05T07:59:30Z"}

# pods of the later PodSet → how many are still expected
EXPECTED = [
    Case("without pods all are expected", [], 2),
    Case("a pod that waits is no longer expected", [{}], 1),
    Case("one is there", [{"node": "a"}], 1),
    Case("one is gated", [{"schedulingGates": [{"name": "x"}]}], 1),
    Case("a pod that succeeded is not expected again", [{"phase": "Succeeded"}], 1),
    Case("a pod that failed is expected again", [{"phase": "Failed"}], 2),
    Case("one is going", [{"node": "a", "meta": {**_TERMINATING}}], 2),
    Case("more than were foretold", [{}, {}, {}], 0),
]


@pytest.mark.parametrize("case", EXPECTED, ids=ids)
def test_later(case: Case[list[dict[str, Any]], int]) -> None:
    """Pods that exist by now are not expected."""
    owner = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "controller": True}]}
    pods = [
        jobset_pod(
            f"l{i}", "g", "l", **{**pod_fields, "meta": {**owner, **pod_fields.get("meta", {})}}
        )
        for i, pod_fields in enumerate(case.given)
    ]

    encoded = encode_objects(node("a"), _podgroup(), _RUNNING, *pods)

    podset = podset_of(encoded, "g", "l-replica-0")
    assert podset.expected == case.want
    if podset.expected:
        assert encoded.snapshot.signatures[podset.expected_signature].queue_request[2] == 2000
    assert podset_of(encoded, "g", "n-replica-0").expected == 0


def test_expected_pods_are_requested() -> None:
    """The whole PodGroup must fit."""
    assert encode_objects(node("a"), _podgroup(), _RUNNING).snapshot.queues.requested[0, 2] == 5000


def test_pods_expected_after_gated_pods_are_not_requested() -> None:
    """No pod of the PodGroup is pending yet."""
    gated = jobset_pod("n", "g", schedulingGates=[{"name": "x"}])

    assert encode_objects(node("a"), _podgroup(), gated).snapshot.queues.requested[0, 2] == 0


def test_a_later_pod_that_shares_a_device_cannot_be_placed_yet() -> None:
    """That is reported before the first pods run."""
    record = _podgroup(sharing={"gpu-fraction": "0.5"}, requests={"cpu": "1"})
    encoded = encode_objects(node("a"), record, jobset_pod("n", "g"))

    assert (prefilter_failure_of(encoded, "g") or ("", ""))[0] == "NoNodeMatches"
    assert (
        "The annotation gpu-fraction of an expected pod requests a share of a GPU"
        in (prefilter_failure_of(encoded, "g") or "")[1]
    )


# the annotation, pods of the later PodSet → nodes of the reserved places
PLACES = [
    Case("as it says", (_reserved(a=1, b=1), []), "ab"),
    Case("in order of the nodes", (_reserved(b=2), []), "bb"),
    Case("a pod waits for one", (_reserved(a=1, b=1), [{}]), "ab"),
    Case("a pod is there that took one", (_reserved(a=1, b=1), [{"node": "a"}]), "b"),
    Case("a pod is elsewhere", (_reserved(b=2), [{"node": "a"}]), "b"),
    Case("a pod succeeded", (_reserved(b=2), [{"phase": "Succeeded"}]), "b"),
    Case("the annotation was brought up to date", (_reserved(b=1), [{"node": "b"}]), "b"),
    Case("all are there", (_reserved(b=2), [{"node": "a"}, {"node": "b"}]), ""),
    Case("more than can come", (_reserved(a=3, b=1), []), "aa"),
    Case("a node that is gone", (_reserved(c=1, b=1), []), "b"),
    Case("less than nothing", (_reserved(a=-1, b=1), []), "b"),
    Case("a PodSet that does not exist", ({"x": {"nodes": {"a": 1}}}, []), ""),
    Case("without an annotation nothing is reserved", ({}, []), ""),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_places(case: Case[tuple[Any, list[dict[str, Any]]], str]) -> None:
    """A reserved place is taken from its node, and charged to its queue."""
    reserved, pods = case.given
    more = [jobset_pod(f"l{i}", "g", "l", **pod_fields) for i, pod_fields in enumerate(pods)]
    snapshot = encode_objects(node("a"), node("b"), _podgroup(reserved), _RUNNING, *more).snapshot
    without = encode_objects(node("a"), node("b"), _podgroup(), _RUNNING, *more).snapshot

    podset = snapshot.podgroups[0].tree.children[1]  # type: ignore[union-attr]
    places = "".join(snapshot.nodes.names[place.node] for place in podset.reserved_places)  # type: ignore[union-attr]
    assert places == case.want
    gpu = snapshot.resources.gpus[0]
    less = (without.nodes.idle - snapshot.nodes.idle)[:, gpu].tolist()
    assert less == [2000 * case.want.count(name) for name in "ab"]
    had = snapshot.queues.allocated[0, 2] - without.queues.allocated[0, 2]
    assert had == 2000 * len(case.want)


def test_reserved_places_are_requested_once() -> None:
    """Neither a place and its pod nor a place and an expected pod count twice."""
    encoded = encode_objects(
        node("a"), _podgroup(_reserved(a=1)), _RUNNING, jobset_pod("l", "g", "l")
    )
    full = encode_objects(node("a"), _podgroup(_reserved(a=2)), _RUNNING)

    assert encoded.snapshot.queues.requested[0, 2] == 1000 + 2000 + 2000
    assert full.snapshot.queues.requested[0, 2] == 1000 + 2 * 2000


def test_places_of_a_non_preemptible_podgroup() -> None:
    """They are kept as well."""
    fields = _podgroup(_reserved(a=1))
    fields["spec"]["preemptibility"] = "non-preemptible"

    assert encode_objects(node("a"), fields, _RUNNING).snapshot.queues.non_preemptible[0, 2] == 3000


# the pod of the first stage → whether places are reserved
STARTED = [
    Case("it is there", {"node": "a"}, True),
    Case("it is promised a node", {"status": {"nominatedNodeName": "a"}}, True),
    Case("nothing is reserved while the first stage waits", {}, False),
]


@pytest.mark.parametrize("case", STARTED, ids=ids)
def test_places_stay_reserved_for_a_started_podgroup(case: Case[dict[str, Any], bool]) -> None:
    """For other PodGroups they do not."""
    encoded = encode_objects(
        node("a"), _podgroup(_reserved(a=1)), jobset_pod("n", "g", **case.given)
    )

    assert bool(podset_of(encoded, "g", "l-replica-0").reserved_places) == case.want
    assert encoded.reserved == {0: json.dumps(_reserved(a=1))}


def test_places_of_a_suspended_jobset_are_released() -> None:
    """It requests them again later."""
    jobset = make_object("JobSet", "j", {"uid": "u"}, spec={"suspend": True})

    podset = podset_of(
        encode_objects(node("a"), jobset, _podgroup(_reserved(a=1)), _RUNNING), "g", "l-replica-0"
    )

    assert (podset.reserved_places, podset.expected) == ((), 0)


def test_a_place_for_a_pod_that_was_lost() -> None:
    """Its class is that of the existing pods; there are never more places than needed."""
    reserved = {"n-replica-0": {"nodes": {"b": 5}, "cause": "repair"}}
    fields = _podgroup(reserved)
    fields["spec"]["subGroups"] = [{"name": "n-replica-0", "minMember": 2}]

    encoded = encode_objects(node("a"), node("b"), fields, _RUNNING)

    (place,) = podset_of(encoded, "g", "n-replica-0").reserved_places
    assert (
        place.node,
        place.cause,
        encoded.snapshot.signatures[place.signature].queue_request[2],
    ) == (
        1,
        ReservationCause.REPAIR,
        1000,
    )


def test_an_invalid_annotation_reserves_nothing() -> None:
    """There is a warning; the PodGroup can be placed all the same."""
    encoded = encode_objects(node("a"), _podgroup("{"), _RUNNING)

    assert podset_of(encoded, "g", "l-replica-0").reserved_places == ()
    (message,) = [warning.message for warning in encoded.warnings]
    assert message.startswith("PodGroup ns/g: metadata.annotations[trainer-kai.dev/reserved]: ")
    assert prefilter_failure_of(encoded, "g") is None


_NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "l"}}}
_STANDALONE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_NEAR]}}
_CONSTRAINTS: dict[str, Any] = {
    "labels": {"app": "l"},
    "affinity": _STANDALONE,
    "hostPorts": [{"port": 22}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "l"}},
        }
    ],
}
_CLAIM = make_object("PersistentVolumeClaim", "c", spec={"accessModes": ["ReadWriteOnce"]})


def _in_zones() -> list[dict[str, Any]]:
    return [node(name, labels={"zone": name}) for name in ("a", "b")]


def test_expected_pods_have_affinity_ports_and_claims() -> None:
    """The same as the pods will have."""
    encoded = encode_objects(*_in_zones(), _CLAIM, _podgroup(**_CONSTRAINTS), _RUNNING)

    signature = encoded.snapshot.signatures[
        podset_of(encoded, "g", "l-replica-0").expected_signature
    ]
    assert (
        len(signature.matched_selectors) == 2
    )  # of the pod with anti-affinity, and of the one with spread
    assert (len(signature.anti_affinity), signature.anti_affinity) == (
        1,
        signature.existing_anti_affinity,
    )
    assert [one.counts_itself for one in signature.spread_constraints] == [True]
    assert signature.host_ports == signature.conflicting_ports == (0,)
    assert signature.rwo_claims == (0,)


def test_a_reserved_place_counts_for_affinity() -> None:
    """It counts like a pod on the node, for the affinity of other pods (rule 6)."""
    encoded = encode_objects(
        *_in_zones(), _CLAIM, _podgroup(_reserved(b=1), **_CONSTRAINTS), _RUNNING
    )

    assert len(podset_of(encoded, "g", "l-replica-0").reserved_places) == 1
    neighbours = encoded.snapshot.pod_relations
    assert neighbours.selector_counts.tolist() == [[0, 1], [0, 1]]
    assert neighbours.anti_affinity_counts.tolist() == [[0, 1]]
    assert encoded.snapshot.nodes.ports.tolist() == [[0], [1]]
    assert (neighbours.claim_node, neighbours.claim_users) == ((1,), (1,))


def test_a_place_beside_a_pod_of_its_class_is_counted_with_it() -> None:
    """Both are on one node."""
    owner = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "controller": True}]}
    workers = [
        jobset_pod(f"l{i}", "g", "l", node="a", meta=owner, affinity=_STANDALONE) for i in range(2)
    ]
    wide = {"l-replica-0": {"nodes": {"a": 1}, "cause": "repair"}}
    plain = _podgroup(wide)
    plain["metadata"]["annotations"].pop("trainer-kai.dev/anticipated")
    plain["spec"]["subGroups"] = [_SUBS[0], {"name": "l-replica-0", "minMember": 3}]

    encoded = encode_objects(*_in_zones(), plain, _RUNNING, *workers)

    assert encoded.snapshot.pod_relations.anti_affinity_counts.tolist() == [[3, 0]]


# labels by which other pods may select expected pods
POD_CLASSES = [
    Case("of the template", {"app": "l"}, True),
    Case(
        "a term on their sub-group selects them",
        {"kai.scheduler/subgroup-name": "l-replica-0"},
        True,
    ),
    Case(
        "a term on another sub-group does not",
        {"kai.scheduler/subgroup-name": "l-replica-1"},
        False,
    ),
    Case("a term on their JobSet selects them", {"jobset.sigs.k8s.io/jobset-name": "j"}, True),
    Case(
        "a term on their replicatedJob selects them",
        {"jobset.sigs.k8s.io/replicatedjob-name": "l"},
        True,
    ),
    Case("a term on their Job selects them", {"jobset.sigs.k8s.io/job-index": "0"}, True),
    Case("a term on another Job does not", {"jobset.sigs.k8s.io/job-index": "1"}, False),
]


@pytest.mark.parametrize("case", POD_CLASSES, ids=ids)
def test_labels_of_pods_that_come_later(case: Case[dict[str, str], bool]) -> None:
    """Those of the template, and the known ones that JobSet will add."""
    selector = {"topologyKey": "zone", "labelSelector": {"matchLabels": case.given}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}
    jobset = make_object(
        "JobSet",
        "j",
        {"uid": JOBSET["uid"]},
        spec={"replicatedJobs": [{"name": "n"}, {"name": "l"}]},
    )
    asking = pod("p", affinity=apart)

    encoded = encode_objects(*_in_zones(), jobset, _podgroup(labels={"app": "l"}), _RUNNING, asking)

    signature = encoded.snapshot.signatures[
        podset_of(encoded, "g", "l-replica-0").expected_signature
    ]
    assert (
        signature.existing_anti_affinity == signature_of(encoded, "p").anti_affinity
    ) == case.want


_READY = {"type": "Ready", "status": "False"}
_NO_CAPACITY = {"type": "DiskPressure", "status": "True"}
# the fault of the node of a place → whether the place is still reserved
FAULTS = [
    Case("a place on a healthy node stays", {}, True),
    Case("a place on a cordoned node goes", {"spec": {"unschedulable": True}}, False),
    Case(
        "cordoned and not ready", {"spec": {"unschedulable": True}, "conditions": [_READY]}, False
    ),
    Case("a place on a node that is not ready stays", {"conditions": [_READY]}, True),
    Case("a place on a node under pressure stays", {"conditions": [_NO_CAPACITY]}, True),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_places_on_nodes_that_take_no_pods(case: Case[dict[str, Any], bool]) -> None:
    """A cordoned node may never come back: the pod may go to another node."""
    encoded = encode_objects(
        node("a"), node("b", **case.given), _podgroup(_reserved(a=1, b=1)), _RUNNING
    )

    places = podset_of(encoded, "g", "l-replica-0").reserved_places
    assert [encoded.snapshot.nodes.names[place.node] for place in places] == ["a", "b"][
        : 1 + case.want
    ]


def test_many_podsets_with_places() -> None:
    """The time grows with their number, not with its square, which would be sixteen times."""
    few, many = _with_reservations(250), _with_reservations(1000)

    assert many < 6 * few


def _with_reservations(size: int) -> int:
    """Return the time of a snapshot after one of so many PodSets has lost a pod."""
    podsets = [f"l-replica-{i}" for i in range(size)]
    reserved = {podset: {"nodes": {"a": 2}, "cause": "repair"} for podset in podsets}
    meta = {"annotations": {"trainer-kai.dev/reserved": json.dumps(reserved)}}
    subs = [{"name": podset, "minMember": 2} for podset in podsets]
    pods = [pod(f"p{i}", "g", podset, node="a") for i, podset in enumerate(podsets)]
    objects = [node("a"), group("g", meta=meta, subGroups=subs), *pods]
    state = ClusterState(StateOptions(now=0))
    state.put_all(cluster_cache(*objects))
    state.snapshot(0)
    state.put(PODS, Key("ns", "p1"), None)
    snapshots = []
    taken = count_instructions(lambda: snapshots.append(state.snapshot(0)))
    assert (
        sum(
            len(podset.reserved_places)
            for podset in podsets_of(podgroup_of(snapshots[0], "g").tree)
        )
        == size - 1
    )
    return taken
