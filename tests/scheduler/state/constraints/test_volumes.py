"""Claims: from where volumes can be reached, which pods share them, what is missing (rule 22)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scheduler.core.nodes.predicates import fits_empty_node
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.snapshot.cluster_state import encode
from tests.support.case import Case, ids
from tests.support.instruction_count import instruction_growth
from tests.support.state.objects import (
    cluster_cache,
    encode_objects,
    make_object,
    node,
    pod,
    prefilter_failure_of,
    signature_of,
)

_NODES = [node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"})]


def _using(*claims: str) -> dict[str, Any]:
    return {"volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def _claim(name: str = "c", *, meta: Any = None, status: Any = None, **spec: Any) -> dict[str, Any]:
    modes = {"accessModes": ["ReadWriteOnce"]}
    return make_object(
        "PersistentVolumeClaim", name, meta, spec={**modes, **spec}, status=status or {}
    )


def _volume(name: str, zone: str = "", status: Any = None, **spec: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
    reach = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if zone else {}
    usual = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    whole = {"storageClassName": "late", **usual, **reach, **spec}
    return make_object(
        "PersistentVolume", name, spec=whole, status=status or {"phase": "Available"}
    )


def _class(name: str = "late", mode: str = "WaitForFirstConsumer", **more: Any) -> dict[str, Any]:
    return make_object("StorageClass", name, volumeBindingMode=mode, **more)


_LOCAL = {"provisioner": "kubernetes.io/no-provisioner"}
_LATE = {"storageClassName": "late"}
_IN_Y = [{"matchLabelExpressions": [{"key": "zone", "values": ["y"]}]}]
_SELECTED = {"annotations": {"volume.kubernetes.io/selected-node": "b"}}
_OTHER = {"claimRef": {"namespace": "ns", "name": "other"}}
_OWN = {"claimRef": {"namespace": "ns", "name": "c"}}
_WIDE = {"accessModes": ["ReadWriteMany"]}

_CLAIM = "PersistentVolumeClaim c of pod p"
_UNBOUND = f"NoNodeMatches: {_CLAIM} is not bound to a volume yet. It can start when it is bound"
# claim, volumes and classes → the nodes that a pod may go to, or the failure
PLACES = [
    Case("a volume in a zone", [_claim(volumeName="v"), _volume("v", "y")], "b"),
    Case("a volume everywhere", [_claim(volumeName="v"), _volume("v")], "ab"),
    Case("a volume nowhere", [_claim(volumeName="v"), _volume("v", "z")], ""),
    Case(
        "a missing volume is a failure",
        [_claim(volumeName="v")],
        "Misconfigured: PersistentVolumeClaim c of pod p is bound to PersistentVolume v, which "
        "does not exist. It can start when the volume exists",
    ),
    Case(
        "a missing claim is a failure",
        [],
        f"Misconfigured: {_CLAIM} does not exist. It can start when the claim exists",
    ),
    Case(
        "a claim that goes",
        [_claim(meta={"deletionTimestamp": "2026-01-05T08:00:00Z"}, volumeName="v"), _volume("v")],
        f"Misconfigured: {_CLAIM} is being deleted. It can start when a new claim exists",
    ),
    Case(
        "a claim that is lost",
        [_claim(status={"phase": "Lost"}, volumeName="v"), _volume("v")],
        f"Misconfigured: {_CLAIM} has lost its volume. It can start when a new claim exists",
    ),
    Case(
        "not bound, and not bound later",
        [_claim(**_LATE), _class(mode="Immediate")],
        _UNBOUND,
    ),
    Case("not bound, and no class", [_claim()], _UNBOUND),
    Case("made when the pod comes", [_claim(**_LATE), _class()], "ab"),
    Case("made in one zone", [_claim(**_LATE), _class(allowedTopologies=_IN_Y)], "b"),
    Case("made for one node", [_claim(**_LATE, meta=_SELECTED), _class()], "b"),
    Case(
        "made by hand",
        [_claim(**_LATE), _class(**_LOCAL), _volume("v", "y"), _volume("w", "y")],
        "b",
    ),
    Case(
        "made by hand, everywhere",
        [_claim(**_LATE), _class(**_LOCAL), _volume("v", "y"), _volume("w")],
        "ab",
    ),
    Case("kept for it", [_claim(**_LATE), _class(**_LOCAL), _volume("v", "y", **_OWN)], "b"),
    *(
        Case(
            f"made by hand, but {name}",
            [_claim(**_LATE, resources={"requests": {"storage": "1Gi"}}), _class(**_LOCAL), volume],
            f"NoNodeMatches: No free PersistentVolume of StorageClass late fits {_CLAIM}. It can "
            "start when one is created or released",
        )
        for name, volume in {
            "kept for another": _volume("v", "y", **_OTHER),
            "of another class": _volume("v", "y", storageClassName="early"),
            "too small": _volume("v", "y", capacity={"storage": "1Mi"}),
            "without a size": _volume("v", "y", capacity={"storage": "large"}),
            "in use": _volume("v", "y", status={"phase": "Bound"}),
            "for other uses": _volume("v", "y", **_WIDE),
        }.items()
    ),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_places(case: Case[list[dict[str, Any]], str]) -> None:
    """A pod must go where its volume can be reached."""
    encoded = encode_objects(*_NODES, *case.given, pod("p", **_using("c")))

    prefilter_failure = prefilter_failure_of(encoded, "pg-p-p")
    if prefilter_failure is not None:
        assert (
            f"{prefilter_failure[0]}: {prefilter_failure[1].removeprefix('pod p: ')}" == case.want
        )
        return
    got = np.flatnonzero(fits_empty_node(encoded.snapshot, signature_of(encoded, "p"))).tolist()
    assert "".join("ab"[row] for row in got) == case.want


def test_a_claim_that_is_made_for_the_pod() -> None:
    """An ephemeral claim is named for its pod; the pod waits until it is created."""
    pod_fields: dict[str, Any] = {"volumes": [{"name": "v", "ephemeral": {}}]}
    encoded = encode_objects(
        *_NODES,
        _claim("p-v", volumeName="v"),
        _volume("v", "y"),
        pod("p", **pod_fields),
        pod("q", **pod_fields),
    )

    assert prefilter_failure_of(encoded, "pg-p-p") is None
    assert len(signature_of(encoded, "p").node_affinity) == 1
    assert prefilter_failure_of(encoded, "pg-q-q") == (
        "NoNodeMatches",
        "PersistentVolumeClaim q-v of pod q is not created yet. It can start when the claim exists",
    )


def test_the_claims_of_a_running_pod_are_not_checked() -> None:
    """It has its node: no failure is reported."""
    assert (
        prefilter_failure_of(encode_objects(*_NODES, pod("p", node="a", **_using("c"))), "pg-p-p")
        is None
    )


# access modes of a claim, pods that use it → rows, of one node, of one pod, node and users
SHARED = [
    Case(
        "ReadWriteOnce binds pods to one node",
        (["ReadWriteOnce"], ["", "b"]),
        ((0,), (), (1,), (1,)),
    ),
    Case("no pod is there yet", (["ReadWriteOnce"], ["", ""]), ((0,), (), (-1,), (0,))),
    Case(
        "ReadWriteOncePod allows one pod", (["ReadWriteOncePod"], ["", "b"]), ((), (0,), (1,), (1,))
    ),
    Case("ReadWriteMany binds nothing", (["ReadWriteMany"], ["", "b"]), ((), (), (), ())),
    Case("many that read", (["ReadWriteOnce", "ReadOnlyMany"], ["", "b"]), ((), (), (), ())),
    Case("no other pod", (["ReadWriteOnce"], [""]), ((), (), (), ())),
    Case("two that run", (["ReadWriteOnce"], ["", "b", "b"]), ((0,), (), (1,), (2,))),
]


@pytest.mark.parametrize("case", SHARED, ids=ids)
def test_shared_claims(case: Case[tuple[list[str], list[str]], tuple[Any, ...]]) -> None:
    """A claim that only one pod uses needs no row."""
    modes, nodes = case.given
    pods = [pod(f"p{i}", node=name, **_using("c", "c")) for i, name in enumerate(nodes)]

    encoded = encode_objects(
        *_NODES, _claim(accessModes=modes, volumeName="v"), _volume("v"), *pods
    )

    signature, near = signature_of(encoded, "p0"), encoded.snapshot.pod_relations
    assert (
        signature.rwo_claims,
        signature.rwop_claims,
        near.claim_node,
        near.claim_users,
    ) == case.want


def test_many_claims_and_volumes() -> None:
    """The nodes of many free local volumes are computed once for all equal claims."""
    places: list[list[int]] = []

    def work(number: int) -> Callable[[], None]:
        objects = _with_free_volumes(number)

        def encode_all() -> None:
            encoded = encode(objects, StateOptions(now=0))
            places.append([len(it) for it in signature_of(encoded, "p0").node_affinity])

        return encode_all

    work(2)()  # what the first call alone must do is not in the figures
    assert instruction_growth(work, 200) < 2.5
    assert places == [[2], [200], [400]]


def _with_free_volumes(number: int) -> Cluster:
    """Return as many nodes, local volumes of them, claims that fit any, and pods with those."""
    nodes = [node(f"n{i}", labels={"zone": f"z{i}"}) for i in range(number)]
    volumes = [_volume(f"v{i}", f"z{i}") for i in range(number)]
    spec = {"resources": {"requests": {"storage": "1Gi"}}, **_LATE}
    claims = [_claim(f"c{i}", **spec) for i in range(number)]
    pods = [pod(f"p{i}", **_using(f"c{i}")) for i in range(number)]
    return cluster_cache(*nodes, *volumes, *claims, _class(**_LOCAL), *pods)


def test_the_largest_volume_of_a_place_counts() -> None:
    """And so does the largest of each set of access modes."""
    places = [
        _volume("v1", "x", capacity={"storage": "1Gi"}),
        _volume("v2", "x", capacity={"storage": "3Gi"}),
        _volume("v3", "x", capacity={"storage": "2Gi"}),
        _volume("v4", "y", capacity={"storage": "9Gi"}, accessModes=["ReadWriteMany"]),
    ]
    spec = {"resources": {"requests": {"storage": "3Gi"}}, **_LATE}
    more = {"resources": {"requests": {"storage": "4Gi"}}, **_LATE}
    claims = [_claim("c", **spec), _claim("d", **more)]

    encoded = encode_objects(
        *_NODES, _class(**_LOCAL), *places, *claims, *(pod(c, **_using(c)) for c in "cd")
    )

    assert [len(places) for places in signature_of(encoded, "c").node_affinity] == [1]
    assert prefilter_failure_of(encoded, "pg-c-c") is None
    assert (prefilter_failure_of(encoded, "pg-d-d") or ("",))[0] == "NoNodeMatches"
