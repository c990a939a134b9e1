"""Pods that get shares of GPUs, from the plan until the bind is seen."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import pytest

from scheduler.core.model.rejections import NO_EVENT
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import commands_from_plan
from scheduler.state.inputs import StateOptions
from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    NOW,
    Fields,
    decode_object,
    group,
    jobset_pod,
    node,
    pod,
    queue,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import PODS

_POLICIES: Final = build_policies(PolicySelection())
_P: Final = Key("ns", "p")
_PLANNED: Final = {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "p-x1y2z3a-shared-gpu"}
_PATCHED: Final = {**_PLANNED, "trainer-kai.dev/gpu-devices": "GPU-1"}


def _pod(version: int, *, on: str = "", uid: str = "p", **more: Any) -> Fields:
    """Return the pod in a version; it has the labels and annotations that are given."""
    meta = {"resourceVersion": str(version), "uid": uid, **more.pop("meta", {})}
    return pod("p", node=on, asks={}, annotations=more.pop("notes", _PLANNED), meta=meta, **more)


def _patched(version: int, **more: Any) -> Fields:
    return _pod(version, labels={"runai-gpu-group": "x"}, notes=_PATCHED, **more)


class Live:
    """A scheduler that plans and assumes what it planned; new GPUs are n0, n1 and so on."""

    def __init__(self, *objects: Fields) -> None:
        self.cache = ClusterCache(
            lambda: StateOptions(now=NOW, default_queue="q", places_gpu_shares=True)
        )
        self.cache.start_leading()
        self._new_group = map("n{}".format, count()).__next__
        self.put(node("a", gpu=1), queue(), *objects)

    def put(self, *objects: Fields) -> None:
        """Show objects."""
        for fields in objects:
            self.cache.update(*decode_object(fields))

    def plan_and_assume(self) -> dict[str, tuple[str, ...]]:
        encoded = self.cache.snapshot()
        made = plan(encoded.snapshot, _POLICIES)
        groups: dict[Key, tuple[str, ...]] = {}
        for one in commands_from_plan(encoded, made, self._new_group).podgroups:
            groups |= self.cache.assume(one).gpu_groups
        self.cache.check()
        return {key.name: it for key, it in groups.items()}

    def devices(self) -> dict[str, int]:
        table = self.cache.snapshot().snapshot.devices
        self.cache.check()
        return dict(zip(table.ids, table.used.tolist(), strict=True))

    def shown(self) -> Pod:
        return self.cache.cluster.pods[_P]

    @property
    def version(self) -> str:
        meta = self.cache.assumed.bound_metadata(_P)
        return meta.resource_version if meta else ""


def _response(live: Live, fields: Fields) -> None:
    live.cache.assumed.set_bound_metadata(_P, decode_object(fields)[2].metadata)


def _bound() -> Live:
    live = Live(_pod(1))
    live.cache.assumed.bind(_P, "a", ("x",))
    assert live.version == "1"
    return live


# what happens to a pod that is being bound → the version in which it is to be bound
CHANGES: list[Case[list[tuple[str, Fields]], str]] = [
    Case("nothing", [], "1"),
    Case("its status changes", [("seen", _pod(2))], "2"),
    Case("another changes its labels", [("seen", _pod(2, labels={"team": "t"}))], "1"),
    Case("the answer, then the watch", [("answer", _patched(2)), ("seen", _patched(2))], "2"),
    Case("the watch, then the answer", [("seen", _patched(2)), ("answer", _patched(2))], "2"),
    Case("only the answer", [("answer", _patched(2))], "2"),
    Case("only the watch: it may be of another", [("seen", _patched(2))], "1"),
    Case(
        "the answer, and the version before is shown again",
        [("answer", _patched(2)), ("seen", _pod(1))],
        "2",
    ),
    Case(
        "a later status arrives before the answer",
        [("seen", _patched(3)), ("answer", _patched(2))],
        "3",
    ),
    Case(
        "another changes it after us",
        [("answer", _patched(2)), ("seen", _patched(3) | {"metadata": _pod(3)["metadata"]})],
        "2",
    ),
    Case(
        "another changes it after us, before the answer",
        [("seen", _pod(3, labels={"team": "t"})), ("answer", _patched(2))],
        "2",
    ),
    Case("an answer about an earlier pod", [("answer", _patched(2, uid="old"))], "1"),
]


@pytest.mark.parametrize("case", CHANGES, ids=ids)
def test_a_pod_is_bound_as_it_was_planned_and_as_we_changed_it(
    case: Case[list[tuple[str, Fields]], str],
) -> None:
    """In whichever order answers and watches arrive; it is shown with its GPU all the time."""
    live = _bound()
    for kind, fields in case.given:
        if kind == "answer":
            _response(live, fields)
        else:
            live.put(fields)
        assert live.shown().metadata.labels == {"runai-gpu-group": "x"}
        assert live.devices() == {"x": 500}
    assert live.version == case.want


def test_only_the_ids_that_were_chosen_are_shown() -> None:
    """Labels that a user or a dead process wrote are left out, and come back with the pod."""
    old = {"runai-gpu-group": "old", "runai-gpu-group/older": "older", "team": "t"}
    live = Live(_pod(1, labels=old))
    live.cache.assumed.bind(_P, "a", ("x", "y"))
    assert live.shown().metadata.labels == {
        "team": "t",
        "runai-gpu-group/x": "x",
        "runai-gpu-group/y": "y",
    }
    assert live.cache.assumed.gpu_groups(_P) == ("x", "y")
    live.cache.assumed.forget_bind(_P)
    assert live.shown().metadata.labels == old
    assert live.cache.assumed.gpu_groups(_P) == ()


def test_the_same_pod_again_is_no_event() -> None:
    """Its labels would else be new ones each time; also those of an Indexed Job."""
    index = {"batch.kubernetes.io/job-completion-index": "3"}
    live = Live(_pod(1, labels=index))
    live.cache.assumed.bind(_P, "a", ("x",))
    for version in (2, 3):
        event = live.cache.update(*decode_object(_pod(version, labels=index)))
        assert (event, live.version) == (NO_EVENT, str(version))


# how it ends that a pod is being bound
ENDS: list[Case[Callable[[Live], object], dict[str, int]]] = [
    Case(
        "the bind is seen, and its GPU is reserved",
        lambda live: live.put(
            pod(
                "r",
                node="a",
                labels={"app": "kai-resource-reservation", "runai-gpu-group": "x"},
                meta={"namespace": "kai-resource-reservation"},
                schedulerName="x",
                serviceAccountName="kai-resource-reservation",
            ),
            _patched(3, on="a"),
        ),
        {"x": 500},
    ),
    Case(
        "the bind is seen, and its GPU is not reserved",
        lambda live: live.put(_patched(3, on="a")),
        {"unknown-0": 500},
    ),
    Case("it is bound elsewhere", lambda live: live.put(_pod(3, on="b")), {}),
    Case("the bind fails", lambda live: live.cache.assumed.forget_bind(_P), {}),
    Case("it is deleted", lambda live: live.cache.update(PODS, _P, None), {}),
    Case("it is created again", lambda live: live.put(_pod(9, uid="new")), {}),
    Case("it is never seen", lambda live: _expire(live, leads=True), {}),
    Case("another process leads", lambda live: _expire(live, leads=False), {}),
]


def _expire(live: Live, *, leads: bool) -> None:
    if leads:
        live.cache.assumed.await_seen(_P, 15.0)
    else:
        live.cache.stop_leading(0.0)
        live.cache.start_leading()
    assert live.cache.expire(14.0) == []
    assert live.devices() == {"x": 500}
    assert live.cache.expire(15.0) == [_P]


@pytest.mark.parametrize("case", ENDS, ids=ids)
def test_nothing_is_left_of_a_bind_that_is_over(
    case: Case[Callable[[Live], object], dict[str, int]],
) -> None:
    """Then a label counts as that of any pod."""
    live = _bound()
    assert live.cache.cluster.bind_gpu_groups == {_P: ("x",)}

    case.given(live)

    assert live.devices() == case.want
    assert (live.cache.cluster.bind_gpu_groups, len(live.cache.assumed)) == ({}, 0)


def test_pods_of_later_plans_share_a_gpu_before_it_is_reserved() -> None:
    """Two halves are one GPU, and there is no room for a third."""
    live = Live(*(pod(it, asks={}, annotations=_PLANNED) for it in "pq"))
    assert live.plan_and_assume() == {"p": ("n0",), "q": ("n0",)}
    live.put(pod("r", asks={}, annotations=_PLANNED))
    assert live.plan_and_assume() == {}
    live.cache.assumed.forget_bind(_P)
    live.put(_pod(2, meta={"deletionTimestamp": "2026-01-05T08:00:00Z"}))
    assert live.plan_and_assume() == {"r": ("n0",)}


def _with_place() -> list[Fields]:
    """Return a PodGroup that runs on "z" and has a reserved place of 0.4 GPU on "a"."""
    later = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1, "requests": {"cpu": "1"}}
    annotations = {
        "trainer-kai.dev/anticipated": json.dumps(
            {"later": [{**later, "sharing": {"gpu-fraction": "0.4"}}]}
        ),
        "trainer-kai.dev/reserved": json.dumps({"l-replica-0": {"nodes": {"a": 1}}}),
    }
    subs = [{"name": f"{it}-replica-0", "minMember": 1} for it in "nl"]
    meta = {"annotations": annotations, "ownerReferences": [JOBSET]}
    return [
        node("z", gpu=0),
        group("g", meta=meta, subGroups=subs),
        jobset_pod("n", "g", node="z", asks={"cpu": "1"}),
    ]


# GPUs of the node, and the share of another pod → its GPU, what is used then, that of the launcher
PLACES: list[Case[tuple[int, str], tuple[str, dict[str, int], str]]] = [
    Case("beside the place", (1, "0.6"), ("n0", {"n0": 1000}, "n0")),
    Case("no room beside it", (1, "0.7"), ("", {"reserved-0": 400}, "n0")),
    Case("on another GPU", (2, "0.7"), ("n0", {"n0": 700, "reserved-0": 400}, "n1")),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_a_reserved_place_follows_the_pods_that_share_its_gpu(
    case: Case[tuple[int, str], tuple[str, dict[str, int], str]],
) -> None:
    """They give its GPU an id, and later the pod for which it was reserved gets that one."""
    gpus, share = case.given
    live = Live(node("a", gpu=gpus), *_with_place())
    assert live.devices() == {"reserved-0": 400}
    live.put(pod("other", asks={}, annotations={**_PLANNED, "gpu-fraction": share}))

    first = live.plan_and_assume().get("other", ("",))
    devices = live.devices()
    notes = {**_PLANNED, "gpu-fraction": "0.4"}
    live.put(jobset_pod("l", "g", "l", asks={"cpu": "1"}, annotations=notes))
    second = live.plan_and_assume()["l"]

    assert (first, devices, second) == ((case.want[0],), case.want[1], (case.want[2],))
