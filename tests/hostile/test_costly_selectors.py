"""A tenant with many costly selectors waits for them; the scheduler and other tenants do not.

Counted are snapshots and evaluations, never seconds.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.claims import evaluation
from scheduler.state.claims.selectors import Outcome, SelectableDevice, _Compiled
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.case import Case, ids
from tests.support.state.devices import (
    DRIVER,
    claim_template,
    claiming_pod,
    device_class,
    gpu,
    request,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import NOW, Fields, group, node, queue
from tests.support.state.random_changes import apply_change
from trainer_kai.api.bounds import MOST_SELECTORS_PER_NAMESPACE

_POLICIES: Final = build_policies(PolicySelection())
_NODES: Final = 12
_DEVICES: Final = 8 * _NODES
_STEPS: Final = 4_000  # of a snapshot: about forty of the evaluations below
_TURN: Final = 1_000
_OWN: Final = f"device.attributes['{DRIVER}']"
_MANY: Final = MOST_SELECTORS_PER_NAMESPACE // 2 - 1


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_TURN", _TURN)


class _Evaluations:
    """The evaluations of one device by one expression."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        answer = _Compiled.answer

        def counted(one: _Compiled, device: SelectableDevice) -> Outcome:
            self.number += 1
            return answer(one, device)

        monkeypatch.setattr(_Compiled, "answer", counted)


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> _Evaluations:
    return _Evaluations(monkeypatch)


def _by_uuid(number: int) -> str:
    """Return an expression that differs on all devices, and matches all."""
    return f"{_OWN}.uuid != 'none-{number}'"


def _tenant(namespace: str, expressions: Iterable[str]) -> Iterator[Fields]:
    """Yield a PodGroup of one pod with a claim for each expression."""
    for n, expression in enumerate(expressions):
        one = request(selectors=[{"cel": {"expression": expression}}])
        for it in (
            claim_template(f"t{n}", one),
            group(f"g{n}", minMember=1),
            claiming_pod(f"g{n}", f"g{n}", template=f"t{n}"),
            resource_claim(f"g{n}-gpu", one, of=f"g{n}"),
        ):
            yield {**it, "metadata": {**it["metadata"], "namespace": namespace}}


def _slice(node: str, devices: int = 8) -> Fields:
    return resource_slice(node, [gpu(f"{node}-{it}") for it in range(devices)])


class _Site:
    def __init__(self, steps: int = _STEPS) -> None:
        self.state = ClusterState(StateOptions(now=NOW, default_queue="q", selector_steps=steps))
        self.snapshots = 0
        self.waits: dict[str, str] = {}  # by PodGroup, the message
        self.unevaluated: tuple[str, ...] = ()
        nodes = [f"n{n}" for n in range(_NODES)]
        self.add(queue(), device_class(), *(node(it, gpu=0) for it in nodes))
        self.add(*(_slice(it) for it in nodes))

    def add(self, *objects: Fields) -> None:
        for it in objects:
            apply_change(self.state, it)

    def plan(self) -> set[str]:
        """Plan once; return the PodGroups that could start. None does."""
        self.snapshots += 1
        encoded = self.state.snapshot(NOW)
        found = plan(encoded.snapshot, _POLICIES)
        self.unevaluated = encoded.unevaluated_namespaces
        self.waits = {
            str(encoded.podgroup_keys[it.podgroup]): rejection_message(encoded.snapshot, it)
            for it in found.rejections
        }
        return {str(encoded.podgroup_keys[it.podgroup]) for it in found.allocations}

    def plans_until(self, *started: str) -> int:
        before = self.snapshots
        while not {*started} <= self.plan():
            assert self.snapshots - before < 1_000
        return self.snapshots - before


def test_a_claim_says_how_far_its_selectors_are_evaluated() -> None:
    site = _Site()
    site.add(*_tenant("a", [_by_uuid(0)]))
    assert site.plan() == set()
    assert site.waits["a/g0"] == (
        "spec.resourceClaims[gpus] of pod g0: its selectors are being evaluated: 9 of 96 devices. "
        "It cannot start before that is done"
    )
    assert site.unevaluated == ("a",)
    told = [site.waits["a/g0"]]
    while not site.plan():
        told.append(site.waits["a/g0"])
    assert [int(it.split("evaluated: ")[1].split(" ")[0]) for it in told] == [9, 45, 81]
    assert not site.unevaluated


def test_a_snapshot_takes_so_many_steps(evaluations: _Evaluations) -> None:
    """A hundred steps each; and in the end all are evaluated, once, and that of the class."""
    site = _Site()
    site.add(*_tenant("a", map(_by_uuid, range(16))))
    before, most = 0, 0
    while (site.plan() or True) and site.unevaluated:
        most, before = max(most, evaluations.number - before), evaluations.number
    assert 0 < most <= _STEPS // 97 + _STEPS // _TURN
    assert evaluations.number == 1 + 16 * _DEVICES
    assert len(site.plan()) == 16


OTHERS: list[Case[int, int]] = [Case("one other tenant", 1, 2), Case("nine other tenants", 9, 10)]


@pytest.mark.parametrize("case", OTHERS, ids=ids)
def test_a_tenant_waits_for_its_turns_only(case: Case[int, int]) -> None:
    """With so many others that ask for all they may, it takes at most so many times as long."""
    alone = _Site()
    alone.add(*_tenant("b", [_by_uuid(1000)]))
    expected = alone.plans_until("b/g0")

    site = _Site()
    for n in range(case.given):
        site.add(*_tenant(f"a{n}", (_by_uuid(1000 * n + it + 2000) for it in range(_MANY))))
    site.plan()
    site.add(*_tenant("b", [_by_uuid(1000)]))
    assert site.plans_until("b/g0") <= case.want * (expected + 1)
    assert len(site.unevaluated) == case.given


def test_what_is_known_does_not_wait() -> None:
    """Nor what is the same for all devices, which is one evaluation; also when a slice changes."""
    site = _Site()
    site.add(*_tenant("a", map(_by_uuid, range(_MANY))))
    plain = f"{_OWN}.type == 'gpu'"
    site.add(*_tenant("b", [plain]))
    site.plans_until("b/g0")
    site.add(*_tenant("c", [plain]))
    assert site.plans_until("c/g0") == 1

    site.add(_slice("n1", 6))
    assert site.plan() >= {"b/g0", "c/g0"}
    assert site.unevaluated == ("a",)


def test_a_tenant_that_asks_for_more_waits_longer() -> None:
    site = _Site()
    for name, number in (("a", 12), ("b", 4), ("c", 1)):
        site.add(*_tenant(name, (f"{_OWN}.uuid != '{name}-{n}'" for n in range(number))))
    took: dict[str, int] = {}
    while not took.keys() >= {"a", "b", "c"}:
        site.plan()
        for it in {"a", "b", "c"} - {*site.unevaluated} - took.keys():
            took[it] = site.snapshots
    assert took["c"] < took["b"] < took["a"]


def test_an_expression_costs_steps_before_it_is_known_to_be_invalid() -> None:
    site = _Site()
    site.add(*_tenant("a", ["nope(1)", *map(_by_uuid, range(4))]))
    site.plan()
    while site.unevaluated:
        site.plan()
    started = site.plan()
    assert started == {f"a/g{n}" for n in range(1, 5)}
    assert "the expression of selectors[0] is no valid CEL expression" in site.waits["a/g0"]


def test_no_more_is_read_of_a_namespace_than_may_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it is valid or not; the first claims of another namespace are read as before."""
    read: list[str] = []
    original = _Compiled.read

    def noted(one: _Compiled) -> None:
        read.append(one._text)
        original(one)

    monkeypatch.setattr(_Compiled, "read", noted)
    site = _Site(steps=0)
    site.add(*_tenant("a", (f"nope({n})" for n in range(3 * MOST_SELECTORS_PER_NAMESPACE))))
    site.add(*_tenant("b", [_by_uuid(0)]))
    assert "b/g0" in site.plan()
    assert len({*read}) <= MOST_SELECTORS_PER_NAMESPACE + 1
    told = [it for it in site.waits.values() if "have more than 128 different selectors" in it]
    assert len(told) > 2 * MOST_SELECTORS_PER_NAMESPACE


def test_a_simulation_evaluates_all() -> None:
    site = _Site(steps=0)
    site.add(*_tenant("a", map(_by_uuid, range(_MANY))))
    assert len(site.plan()) == _MANY
    assert site.unevaluated == ()
