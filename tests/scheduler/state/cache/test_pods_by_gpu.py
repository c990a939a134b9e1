"""The shared GPUs by node and id, with their reservation pods and users."""

from typing import Any

import pytest

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.support.case import Case, ids
from tests.support.state.objects import NOW, Fields, decode_object, node, pod
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import PODS

_GOING = {"deletionTimestamp": "2026-01-05T08:00:00Z"}


def _reservation_pod(name: str, group: str, at: str = "a", **more: Any) -> Fields:
    labels = {"app": "kai-resource-reservation", **({"runai-gpu-group": group} if group else {})}
    meta = {"namespace": "kai-resource-reservation", **more.pop("meta", {})}
    account = "kai-resource-reservation"
    return pod(
        name, node=at, labels=labels, meta=meta, schedulerName="x", serviceAccountName=account
    ) | {"status": {"phase": more.pop("phase", "Running")}}


def _user(name: str, *groups: str, at: str = "a", devices: int = 1, **more: Any) -> Fields:
    notes = {"gpu-fraction": "0.1", "gpu-fraction-num-devices": str(devices)}
    labels = {f"runai-gpu-group/{it}": it for it in groups}
    fields = {"asks": {}, "annotations": notes, "labels": labels, "node": at, **more}
    return pod(name, **fields)


class Watch:
    """A cache of two nodes, and the GPUs and pods that it was told have changed."""

    def __init__(self, *objects: Fields) -> None:
        self.cache = ClusterCache(
            lambda: StateOptions(now=NOW, default_queue="q", places_gpu_shares=True)
        )
        self.found = self.cache.gpu_groups
        self.changed: list[tuple[str, str]] = []
        self.leftovers: list[str] = []
        self.put(node("a"), node("b"), *objects)
        self.found.on_change = lambda at, group: self.changed.append((at, group))
        self.found.on_leftover = lambda key: self.leftovers.append(key.name)

    def put(self, *objects: Fields) -> None:
        """Show objects, and check that a new process would know the same of them."""
        for fields in objects:
            self.cache.update(*decode_object(fields))
        self.cache.check()

    def delete(self, fields: Fields) -> None:
        """Show that a pod is gone."""
        self.cache.update(PODS, decode_object(fields)[1], None)
        self.cache.check()

    def drain(self) -> list[tuple[str, str]]:
        changed, self.changed = sorted(self.changed), []
        return changed

    def users(self, group: str, at: str = "a") -> list[str]:
        return [key.name for key in self.found.users(at, group)]


def test_a_gpu_from_its_first_pod_to_its_last() -> None:
    """The index reports each change that matters, and the last one leaves nothing."""
    watch = Watch()
    held = _reservation_pod("r", "x")
    watch.put(held)
    assert watch.drain() == [("a", "x")]
    watch.put({**held, "metadata": {**held["metadata"], "annotations": {"device": "GPU-1"}}})
    assert watch.drain() == [("a", "x")]
    assert [it.metadata.annotations["device"] for it in watch.found.reservation_pods("a", "x")]
    watch.put(_user("p", "x"))
    assert (watch.drain(), watch.users("x"), watch.found.groups()) == (
        [("a", "x")],
        ["p"],
        (("a", "x"),),
    )
    watch.put(_user("p", "x"))
    assert watch.drain() == []
    watch.put(_user("p", "x", meta=_GOING))
    assert (watch.drain(), watch.users("x")) == ([("a", "x")], ["p"])
    watch.put(_user("p", "x", phase="Succeeded"))
    assert (watch.drain(), watch.users("x")) == ([("a", "x")], [])
    watch.put(_reservation_pod("r", "x", meta=_GOING))
    assert (watch.drain(), len(watch.found.reservation_pods("a", "x"))) == ([("a", "x")], 1)
    watch.delete(held)
    watch.delete(_user("p", "x"))
    assert (watch.drain(), watch.found.groups()) == ([("a", "x")], ())
    assert not any(watch.found.content.values())


# a pod that says that it has a share of x on node a → the users of x, and the leftovers
NO_USERS: list[Case[Fields, tuple[list[str], list[str]]]] = [
    Case("of another scheduler", _user("p", "x", schedulerName="x"), ([], [])),
    Case(
        "a pod without shares uses none",
        pod("p", node="a", labels={"runai-gpu-group": "x"}),
        ([], []),
    ),
    Case("with whole GPUs", _user("p", "x", asks={"nvidia.com/gpu": "1"}), ([], [])),
    Case("with invalid requests", _user("p", "x", asks={"cpu": "x"}), (["p"], [])),
    Case("that has failed", _user("p", "x", phase="Failed"), ([], [])),
    Case("a pod that terminates still uses its share", _user("p", "x", meta=_GOING), (["p"], [])),
    Case("on another node", _user("p", "x", at="b"), ([], [])),
    Case("a pod without labels uses none", _user("p"), ([], [])),
    Case("a pod that waits leaves its label behind", _user("p", "x", at=""), ([], ["p"])),
    Case("that waits and terminates", _user("p", "x", at="", meta=_GOING), ([], [])),
]


@pytest.mark.parametrize("case", NO_USERS, ids=ids)
def test_which_pods_have_a_share(case: Case[Fields, tuple[list[str], list[str]]]) -> None:
    """Only pods that count in a plan."""
    watch = Watch(_reservation_pod("r", "x"))

    watch.put(case.given)

    assert (watch.users("x"), [key.name for key in watch.found.leftovers()]) == case.want
    assert watch.leftovers == case.want[1]


def test_a_pod_with_more_labels_than_gpus_keeps_no_reservation_pod() -> None:
    """The same labels of a pod count as in a plan, and the index reports when these change."""
    watch = Watch(_user("p", "x", "y", "z", devices=2), _reservation_pod("rz", "z"))
    assert [it for it in "xyz" if watch.users(it)] == ["x", "z"]

    watch.put(_reservation_pod("ry", "y"))

    assert watch.drain() == [("a", "x"), ("a", "y"), ("a", "z")]
    assert [it for it in "xyz" if watch.users(it)] == ["y", "z"]
    watch.put(_reservation_pod("ry", "y", phase="Failed"))
    assert [it for it in "xyz" if watch.users(it)] == ["x", "z"]
    assert len(watch.found.reservation_pods("a", "y")) == 1


def test_a_reservation_pod_on_another_node_is_another_gpu() -> None:
    """A reservation pod without an id is reported with an empty id."""
    watch = Watch(_user("p", "x"), _reservation_pod("r", "x", "b"), _reservation_pod("s", "", "b"))
    assert sorted(watch.found.groups()) == [("a", "x"), ("b", ""), ("b", "x")]
    assert (watch.users("x"), watch.users("x", "b")) == (["p"], [])
    assert [len(watch.found.reservation_pods(at, "x")) for at in "ab"] == [0, 1]


def test_a_pod_that_is_being_bound_has_the_gpus_that_were_chosen() -> None:
    """Whatever its labels say; when the bind has failed they are what is left of it."""
    watch = Watch(_user("p", "old", at=""))
    key = Key("ns", "p")
    assert watch.found.leftovers() == (key,)

    watch.cache.assumed.bind(key, "a", ("x",))

    assert (watch.users("x"), watch.users("old"), watch.found.leftovers()) == (["p"], [], ())
    watch.put(_user("p", "old", at="", devices=2))
    assert (watch.users("x"), watch.users("old"), watch.leftovers) == (["p"], [], [])
    watch.cache.assumed.forget_bind(key)
    assert (watch.users("x"), watch.found.leftovers(), watch.leftovers) == ([], (key,), ["p"])


def test_a_process_that_no_longer_leads_is_told_nothing() -> None:
    """The next leader asks for all of it."""
    watch = Watch()
    watch.cache.start_leading()
    watch.cache.stop_leading(0.0)
    watch.put(_reservation_pod("r", "x"), _user("p", "x", at=""))
    assert (watch.changed, watch.leftovers) == ([], [])
    assert (watch.found.groups(), watch.found.leftovers()) == ((("a", "x"),), (Key("ns", "p"),))
