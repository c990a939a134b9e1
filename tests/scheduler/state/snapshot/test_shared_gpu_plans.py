"""What is planned where a GPU is only held, or where it is not known which GPU pods share."""

from typing import Any, Final

import pytest

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.commands import commands_from_plan
from tests.support.case import Case, ids
from tests.support.state.objects import Fields, encode_objects, group, make_object, node, pod

_POLICIES: Final = build_policies(PolicySelection())
_HIGH: Final = make_object("PriorityClass", "high", value=90)


def _share(name: str, amount: str, of: str = "", **more: Any) -> Fields:
    notes = {"gpu-fraction": amount, "runai/shared-gpu-configmap": f"{name}-x1y2z3a-shared-gpu"}
    return pod(name, of, asks={}, annotations=notes, **more)


def _runs(name: str, amount: str, gpu: str) -> list[Fields]:
    started = {"annotations": {"kai.scheduler/last-start-timestamp": "2026-01-05T07:00:00Z"}}
    labels = {"runai-gpu-group": gpu}
    return [
        group(f"g-{name}", meta=started, minMember=1),
        _share(name, amount, f"g-{name}", node="a", labels=labels),
    ]


def _reservation_pod(gpu: str, **meta: str) -> Fields:
    return pod(
        f"r-{gpu}",
        node="a",
        labels={"app": "kai-resource-reservation", "runai-gpu-group": gpu},
        meta={"namespace": "kai-resource-reservation", **meta},
        schedulerName="x",
        serviceAccountName="kai-resource-reservation",
    )


def _wants(amount: str, **more: Any) -> list[Fields]:
    """Return a pod that comes before the others, and its PodGroup."""
    return [
        _HIGH,
        group("g-new", minMember=1, priorityClassName="high"),
        _share("new", amount, "g-new", **more) if amount else pod("new", "g-new", **more),
    ]


_TERMINATES: Final = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
# objects beside a node of one GPU → pods that are bound, nominated and evicted
PLANS: list[Case[list[Fields], tuple[str, str, str]]] = [
    Case("a GPU that nothing holds", _wants(""), ("new", "", "")),
    Case("a GPU that is only held, whole", [_reservation_pod("x"), *_wants("")], ("", "new", "")),
    Case("a GPU that is only held", [_reservation_pod("x"), *_wants("0.5")], ("", "new", "")),
    Case(
        "a shared GPU",
        [_reservation_pod("x"), *_runs("o", "0.3", "x"), *_wants("0.5")],
        ("new", "", ""),
    ),
    Case(
        "a shared GPU that is too full",
        [_reservation_pod("x"), *_runs("o", "0.3", "x"), *_runs("p", "0.3", "x"), *_wants("0.5")],
        ("", "new", "p"),
    ),
    Case("a GPU that is not known", [*_runs("o", "0.3", "x"), *_wants("0.5")], ("", "new", "o")),
    Case(
        "a GPU of several pods that is not known: all of them",
        [*_runs("o", "0.3", "x"), *_runs("p", "0.3", "x"), *_wants("0.5")],
        ("", "new", "op"),
    ),
    Case(
        "a GPU that is reserved no longer",
        [_reservation_pod("x", **_TERMINATES), *_runs("o", "0.3", "x"), *_wants("0.5")],
        ("", "new", "o"),
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_plans(case: Case[list[Fields], tuple[str, str, str]]) -> None:
    """No pod is bound to a GPU that is held, or that other pods may have."""
    found = encode_objects(node("a", gpu=1), *case.given, places_gpu_shares=True)

    commands = commands_from_plan(found, plan(found.snapshot, _POLICIES))

    evicted = sorted(key.name for one in commands.evictions for key in one.pods)
    bound, nominated = (
        "".join(it.pod.name for it in some) for some in (commands.binds, commands.nominations)
    )
    assert (bound, nominated, "".join(evicted)) == case.want
