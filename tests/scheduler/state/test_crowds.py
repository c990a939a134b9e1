"""Pods of one namespace that say more of others, and of ports, than is looked at."""

import json
from typing import Any, Final

from scheduler.core.model import NONE
from scheduler.state.state import State
from scheduler.state.terms import Terms
from tests.support.clusters import NOW, decoded, group, node, pod, queue
from trainer_kai.api.names import ANTICIPATED
from trainer_kai.policy.podbounds import MOST_OF_NAMESPACE, MOST_TERMS

_MUST: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_FIT: Final = MOST_OF_NAMESPACE // MOST_TERMS  # pods with as many terms as a pod may have


def _shy(name: str, second: int, **more: Any) -> dict[str, Any]:
    """Return a pod that keeps away from many; of several the one made first is the oldest."""
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"of": f"{name}-{n}"}}}
        for n in range(MOST_TERMS)
    ]
    meta = {"creationTimestamp": f"2026-01-05T07:00:{second:02}Z"}
    return pod(name, meta=meta, affinity={"podAntiAffinity": {_MUST: terms}}, **more)


def _taking(name: str, second: int, *ports: int) -> dict[str, Any]:
    """Return a pod that takes ports of its node."""
    meta = {"creationTimestamp": f"2026-01-05T07:00:{second:02}Z"}
    taken = [{"containerPort": n, "hostPort": n} for n in ports]
    return pod(name, meta=meta, containers=[{"ports": taken}])


def _all_ports() -> list[dict[str, Any]]:
    """Return pods that take as many ports as are looked at."""
    return [_taking(f"p{n}", n, *range(256 * n + 1, 256 * n + 257)) for n in range(8)]


def _state(*objects: dict[str, Any]) -> State:
    state = State(Terms(now=NOW, default_queue="q"))
    _tell(state, queue(), node("a", labels={"zone": "z"}), node("b"), *objects)
    return state


def _tell(state: State, *objects: dict[str, Any], is_there: bool = True) -> None:
    for fields in objects:
        shelf, key, one = decoded(fields)
        getattr(state, shelf).tell(key, one if is_there else None)


def _waiting(state: State) -> list[str]:
    """Return the units that are told that there are too many."""
    found = state.snapshot(NOW)
    state.check(NOW)
    return [
        unit.name.removeprefix("ns/pg-").partition("-")[0]
        for unit in found.snapshot.units
        if unit.bar is not None and "have more than 2048 different" in unit.bar.message
    ]


def test_the_newest_wait_until_older_ones_are_gone() -> None:
    """Whatever the order in which they are told."""
    pods = [_shy(f"p{n}", n) for n in range(_FIT + 2)]
    state = _state(*reversed(pods))

    assert _waiting(state) == [f"p{_FIT}", f"p{_FIT + 1}"]
    _tell(state, pods[0], is_there=False)
    assert _waiting(state) == [f"p{_FIT + 1}"]
    _tell(state, pods[1], is_there=False)
    assert _waiting(state) == []


def test_who_runs_comes_before_who_waits() -> None:
    """One that runs and is the newest of all is heard, and one that waits is not."""
    pods = [_shy(f"p{n}", n) for n in range(_FIT)]
    state = _state(*pods, _shy("new", 59, node="a"))

    assert _waiting(state) == [f"p{_FIT - 1}"]


def test_who_runs_and_is_too_much_has_its_room_and_keeps_nobody_away() -> None:
    """It takes what it takes, and cannot be placed anew."""
    pods = [_shy(f"p{n}", n, node="a") for n in range(_FIT)]
    shunned = pod("s", labels={"of": "new-0"})
    state = _state(*pods, _shy("new", 59, node="b", asks={"nvidia.com/gpu": "3"}), shunned)

    found = state.snapshot(NOW)

    rows = {str(key): row for row, key in enumerate(found.pods)}
    shapes, pods_of = found.snapshot.shapes, found.snapshot.pods
    new, other = (shapes[pods_of.shape[rows[name]]] for name in ("ns/new", "ns/s"))
    gpu = found.snapshot.axes.gpus[0]
    assert found.snapshot.nodes.idle[1, gpu] == 5000
    assert (new.apart, other.shunned, pods_of.node[rows["ns/new"]]) == ((), (), 1)
    assert len(new.any_of) == 1
    assert [need.codes for terms in new.any_of[0] for need in terms] == [frozenset()]


def test_the_same_words_count_once() -> None:
    """Pods of one spec, also of different labels, are one voice in a namespace."""
    alike = [_shy("p", n, labels={"number": str(n)}) for n in range(40)]
    for n, it in enumerate(alike):
        it["metadata"] = {**it["metadata"], "name": f"p{n}"}

    assert _waiting(_state(*alike)) == []


def test_another_namespace_has_a_bound_of_its_own() -> None:
    """What one says keeps nobody else waiting."""
    pods = [_shy(f"p{n}", n) for n in range(_FIT)]
    other = _shy("other", 59)
    other["metadata"]["namespace"] = "others"

    assert _waiting(_state(*pods, other)) == []


def test_ports_count_as_well() -> None:
    """Different ones, of all pods together."""
    pods = _all_ports()
    state = _state(*pods, _taking("same", 30, *range(1, 257)))

    assert _waiting(state) == []
    _tell(state, _taking("more", 40, *range(3000, 3256)))
    assert _waiting(state) == ["more"]


def test_a_gang_waits_whole() -> None:
    """The bar is one of its pods."""
    pods = [_shy(f"p{n}", n) for n in range(_FIT)]
    gang = [group("g"), _shy("late", 50, group="g"), pod("x", "g")]
    state = _state(*pods, *gang)

    found = state.snapshot(NOW)

    (unit,) = (it for it in found.snapshot.units if it.name == "ns/g")
    assert unit.bar is not None
    assert unit.bar.message.startswith("pod late: the pods of namespace ns have more than 2048")
    assert unit.queue != NONE


def test_one_that_changes_its_place_among_the_others() -> None:
    """A pod on a node comes first, and one that is made anew under its name is the newest."""
    pods = [_shy(f"p{n}", n) for n in range(_FIT + 1)]
    state = _state(*pods)
    assert _waiting(state) == [f"p{_FIT}"]

    _tell(state, _shy(f"p{_FIT}", _FIT, node="a"))
    assert _waiting(state) == [f"p{_FIT - 1}"]
    _tell(state, _shy("p0", 59))
    assert _waiting(state) == ["p0"]
    _tell(state, pods[0], is_there=False)
    assert _waiting(state) == []


def test_one_more_that_waits_is_written_in_the_same_codes() -> None:
    """Nothing of the others is made anew, and it is told in its turn."""
    state = _state(*[_shy(f"p{n}", n) for n in range(_FIT + 1)])
    before = state.snapshot(NOW).snapshot.shapes

    _tell(state, _shy("more", 58))

    after = state.snapshot(NOW).snapshot.shapes
    assert all(a is b for a, b in zip(before, after, strict=True))  # what is left out is alike
    assert sorted(_waiting(state)) == ["more", f"p{_FIT}"]


def test_ports_that_others_have_too() -> None:
    """Which kin is left out changes where no word of the others does."""
    state = _state(*_all_ports(), _taking("more", 20, 3000), _taking("same", 30, 1))

    assert _waiting(state) == ["more", "same"]
    _tell(state, _taking("more", 20, 3000), is_there=False)
    assert _waiting(state) == []
    _tell(state, _taking("more", 20, 3000))
    assert _waiting(state) == ["more", "same"]


def test_expected_pods_come_last_and_have_their_turn() -> None:
    """The PodGroup that expects them is told, and later no more, in the same words of others."""
    later = {"subGroupPrefix": "w-", "replicas": 1, "count": 1, "hostPorts": [{"port": 1}]}
    annotations = {ANTICIPATED: json.dumps({"later": [later]})}
    subs = [{"name": name, "minMember": 1} for name in ("l", "w-0")]
    gang = [group("g", meta={"annotations": annotations}, subGroups=subs), pod("x", "g", "l")]
    more = _taking("more", 20, 3000)
    state = _state(*_all_ports(), more, *gang)

    for is_there in (True, False, True):
        _tell(state, more, is_there=is_there)
        found = state.snapshot(NOW)
        state.check(NOW)
        (unit,) = (it for it in found.snapshot.units if it.name == "ns/g")
        assert (unit.bar is not None) == is_there


def test_a_podgroup_is_told_what_it_has_itself() -> None:
    """Equal pods count once."""
    alike = [_shy("a", n, labels={"number": str(n)}, group="g") for n in range(3)]
    for n, it in enumerate(alike):
        it["metadata"] = {**it["metadata"], "name": f"a{n}"}
    others = [_shy(f"p{n}", n, node="a") for n in range(_FIT)]

    found = _state(*others, group("g"), *alike, _shy("b", 5, group="g")).snapshot(NOW)

    (unit,) = (it for it in found.snapshot.units if it.name == "ns/g")
    assert unit.bar is not None
    assert f"the PodGroup has {2 * MOST_TERMS} terms and 0 host ports" in unit.bar.message
