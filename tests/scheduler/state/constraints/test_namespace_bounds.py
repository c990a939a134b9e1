"""Pods of one namespace with more affinity terms and host ports than are evaluated."""

import json
from typing import Any, Final

from scheduler.core.messages.rejection_messages import prefilter_message
from scheduler.core.model.rejections import PreFilterCause
from scheduler.core.model.resources import NONE
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.state.objects import NOW, decode_object, group, node, pod, queue
from trainer_kai.api.bounds import MOST_TERMS, MOST_TERMS_PER_NAMESPACE
from trainer_kai.api.names import ANTICIPATED

_MUST: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_FIT: Final = MOST_TERMS_PER_NAMESPACE // MOST_TERMS  # pods with as many terms as a pod may have


def _anti_affinity_pod(name: str, second: int, **more: Any) -> dict[str, Any]:
    """Return a pod with many anti-affinity terms; *second* is its creation time."""
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"of": f"{name}-{n}"}}}
        for n in range(MOST_TERMS)
    ]
    meta = {"creationTimestamp": f"2026-01-05T07:00:{second:02}Z"}
    return pod(name, meta=meta, affinity={"podAntiAffinity": {_MUST: terms}}, **more)


def _host_port_pod(name: str, second: int, *ports: int) -> dict[str, Any]:
    meta = {"creationTimestamp": f"2026-01-05T07:00:{second:02}Z"}
    taken = [{"containerPort": n, "hostPort": n} for n in ports]
    return pod(name, meta=meta, containers=[{"ports": taken}])


def _all_ports() -> list[dict[str, Any]]:
    return [_host_port_pod(f"p{n}", n, *range(256 * n + 1, 256 * n + 257)) for n in range(8)]


def _state(*objects: dict[str, Any]) -> ClusterState:
    state = ClusterState(StateOptions(now=NOW, default_queue="q"))
    _put(state, queue(), node("a", labels={"zone": "z"}), node("b"), *objects)
    return state


def _put(state: ClusterState, *objects: dict[str, Any], is_present: bool = True) -> None:
    for fields in objects:
        resource, key, one = decode_object(fields)
        state.put(resource, key, one if is_present else None)


def _waiting(state: ClusterState) -> list[str]:
    encoded = state.snapshot(NOW)
    state.check(NOW)
    return [
        podgroup.name.removeprefix("ns/pg-").partition("-")[0]
        for podgroup in encoded.snapshot.podgroups
        if podgroup.prefilter_failure is not None
        and podgroup.prefilter_failure.cause is PreFilterCause.NAMESPACE_CONSTRAINT_LIMIT
    ]


def test_the_newest_wait_until_older_ones_are_gone() -> None:
    """Whatever the order of the events."""
    pods = [_anti_affinity_pod(f"p{n}", n) for n in range(_FIT + 2)]
    state = _state(*reversed(pods))

    assert _waiting(state) == [f"p{_FIT}", f"p{_FIT + 1}"]
    _put(state, pods[0], is_present=False)
    assert _waiting(state) == [f"p{_FIT + 1}"]
    _put(state, pods[1], is_present=False)
    assert _waiting(state) == []


def test_running_pods_come_before_pending_ones() -> None:
    """The terms of the newest pod count if it runs, and those of a pending one do not."""
    pods = [_anti_affinity_pod(f"p{n}", n) for n in range(_FIT)]
    state = _state(*pods, _anti_affinity_pod("new", 59, node="a"))

    assert _waiting(state) == [f"p{_FIT - 1}"]


def test_a_running_pod_beyond_the_bound_keeps_its_room_and_repels_no_pod() -> None:
    """It keeps its resources, and its PodGroup cannot be placed again."""
    pods = [_anti_affinity_pod(f"p{n}", n, node="a") for n in range(_FIT)]
    existing_anti_affinity = pod("s", labels={"of": "new-0"})
    state = _state(
        *pods,
        _anti_affinity_pod("new", 59, node="b", asks={"nvidia.com/gpu": "3"}),
        existing_anti_affinity,
    )

    encoded = state.snapshot(NOW)

    rows = {str(key): row for row, key in enumerate(encoded.pod_keys)}
    signatures, pods_of = encoded.snapshot.signatures, encoded.snapshot.pods
    new, other = (signatures[pods_of.signature[rows[name]]] for name in ("ns/new", "ns/s"))
    gpu = encoded.snapshot.resources.gpus[0]
    assert encoded.snapshot.nodes.idle[1, gpu] == 5000
    assert (new.anti_affinity, other.existing_anti_affinity, pods_of.node[rows["ns/new"]]) == (
        (),
        (),
        1,
    )
    assert len(new.node_affinity) == 1
    assert [need.codes for terms in new.node_affinity[0] for need in terms] == [frozenset()]


def test_equal_terms_count_once() -> None:
    """Pods of one spec, also with different labels, count once in a namespace."""
    alike = [_anti_affinity_pod("p", n, labels={"number": str(n)}) for n in range(40)]
    for n, it in enumerate(alike):
        it["metadata"] = {**it["metadata"], "name": f"p{n}"}

    assert _waiting(_state(*alike)) == []


def test_another_namespace_has_a_bound_of_its_own() -> None:
    """The terms of one namespace do not let pods of another wait."""
    pods = [_anti_affinity_pod(f"p{n}", n) for n in range(_FIT)]
    other = _anti_affinity_pod("other", 59)
    other["metadata"]["namespace"] = "others"

    assert _waiting(_state(*pods, other)) == []


def test_ports_count_as_well() -> None:
    """The different ports of all pods count together."""
    pods = _all_ports()
    state = _state(*pods, _host_port_pod("same", 30, *range(1, 257)))

    assert _waiting(state) == []
    _put(state, _host_port_pod("more", 40, *range(3000, 3256)))
    assert _waiting(state) == ["more"]


def test_a_podgroup_waits_whole() -> None:
    """The failure of one of its pods lets all of it wait."""
    pods = [_anti_affinity_pod(f"p{n}", n) for n in range(_FIT)]
    record = [group("g"), _anti_affinity_pod("late", 50, group="g"), pod("x", "g")]
    state = _state(*pods, *record)

    encoded = state.snapshot(NOW)

    (podgroup,) = (it for it in encoded.snapshot.podgroups if it.name == "ns/g")
    assert podgroup.prefilter_failure is not None
    assert prefilter_message(podgroup.prefilter_failure) == (
        "The pods of namespace ns have more than 2048 different terms about other pods and host "
        f"ports together; the PodGroup has {MOST_TERMS} terms and 0 host ports, and older ones are "
        "ahead of it. It can start when older ones are deleted, or when pods of the namespace have "
        "fewer in spec.affinity, spec.topologySpreadConstraints and spec.containers[*].ports "
        "(equal pods count once)"
    )
    assert podgroup.queue != NONE


def test_one_that_changes_its_place_among_the_others() -> None:
    """A pod on a node comes first, and one that is created again under its name is the newest."""
    pods = [_anti_affinity_pod(f"p{n}", n) for n in range(_FIT + 1)]
    state = _state(*pods)
    assert _waiting(state) == [f"p{_FIT}"]

    _put(state, _anti_affinity_pod(f"p{_FIT}", _FIT, node="a"))
    assert _waiting(state) == [f"p{_FIT - 1}"]
    _put(state, _anti_affinity_pod("p0", 59))
    assert _waiting(state) == ["p0"]
    _put(state, pods[0], is_present=False)
    assert _waiting(state) == []


def test_one_more_waiting_pod_keeps_the_encoding() -> None:
    """No other row is built again, and the new PodGroup gets the message."""
    state = _state(*[_anti_affinity_pod(f"p{n}", n) for n in range(_FIT + 1)])
    before = state.snapshot(NOW).snapshot.signatures

    _put(state, _anti_affinity_pod("more", 58))

    after = state.snapshot(NOW).snapshot.signatures
    assert all(a is b for a, b in zip(before, after, strict=True))  # what is left out is alike
    assert sorted(_waiting(state)) == ["more", f"p{_FIT}"]


def test_ports_that_others_have_too() -> None:
    """Which class is left out changes although the evaluated terms and ports do not."""
    state = _state(*_all_ports(), _host_port_pod("more", 20, 3000), _host_port_pod("same", 30, 1))

    assert _waiting(state) == ["more", "same"]
    _put(state, _host_port_pod("more", 20, 3000), is_present=False)
    assert _waiting(state) == []
    _put(state, _host_port_pod("more", 20, 3000))
    assert _waiting(state) == ["more", "same"]


def test_expected_pods_come_last_and_have_their_turn() -> None:
    """The PodGroup that expects them waits only while pods that exist reach the bound."""
    anticipated = {"subGroupPrefix": "w-", "replicas": 1, "count": 1, "hostPorts": [{"port": 1}]}
    annotations = {ANTICIPATED: json.dumps({"later": [anticipated]})}
    subs = [{"name": name, "minMember": 1} for name in ("l", "w-0")]
    record = [group("g", meta={"annotations": annotations}, subGroups=subs), pod("x", "g", "l")]
    more = _host_port_pod("more", 20, 3000)
    state = _state(*_all_ports(), more, *record)

    for is_present in (True, False, True):
        _put(state, more, is_present=is_present)
        encoded = state.snapshot(NOW)
        state.check(NOW)
        (podgroup,) = (it for it in encoded.snapshot.podgroups if it.name == "ns/g")
        assert (podgroup.prefilter_failure is not None) == is_present


def test_a_podgroup_reads_its_own_numbers() -> None:
    """Equal pods count once."""
    alike = [_anti_affinity_pod("a", n, labels={"number": str(n)}, group="g") for n in range(3)]
    for n, it in enumerate(alike):
        it["metadata"] = {**it["metadata"], "name": f"a{n}"}
    others = [_anti_affinity_pod(f"p{n}", n, node="a") for n in range(_FIT)]

    encoded = _state(*others, group("g"), *alike, _anti_affinity_pod("b", 5, group="g")).snapshot(
        NOW
    )

    (podgroup,) = (it for it in encoded.snapshot.podgroups if it.name == "ns/g")
    assert podgroup.prefilter_failure is not None
    assert f"the PodGroup has {2 * MOST_TERMS} terms and 0 host ports" in prefilter_message(
        podgroup.prefilter_failure
    )
