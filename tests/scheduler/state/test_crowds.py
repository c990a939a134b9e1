"""Pods of one namespace that say more of others, and of ports, than is looked at."""

from typing import Any, Final

from scheduler.core.model import NONE
from scheduler.state.state import State
from scheduler.state.terms import Terms
from tests.support.clusters import NOW, decoded, group, node, pod, queue
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

    def taking(name: str, first: int, second: int) -> dict[str, Any]:
        ports = [{"containerPort": n, "hostPort": n} for n in range(first, first + 256)]
        meta = {"creationTimestamp": f"2026-01-05T07:00:{second:02}Z"}
        return pod(name, meta=meta, containers=[{"ports": ports}])

    pods = [taking(f"p{n}", 1 + 256 * n, n) for n in range(8)]
    same = taking("same", 1, 30)
    state = _state(*pods, same)

    assert _waiting(state) == []
    _tell(state, taking("more", 3000, 40))
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
