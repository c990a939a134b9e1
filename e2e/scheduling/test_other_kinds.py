"""Pods of other kinds: none starts before it is grouped, and none waits for ever."""

from typing import Final

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import PODS, Obj, Resource
from e2e.cluster.timeline import Timeline
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from trainer_kai.api.names import BATCH_MIN_MEMBER, POD_GROUP, SCHEDULER_NAME, SKIP_PODGROUPER

_STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
_GANG: Final = 8
_WAITS_S: Final = 60.0  # a pod without a PodGroup waits for half a minute


async def test_a_stateful_set_is_a_gang_and_one_without_podgroup_starts_later(
    installation: Installation, own_namespace: str
) -> None:
    """Its pods come one by one, and are placed together; what skips the podgrouper says so."""
    api = installation.cluster.api
    async with installation.cluster.timeline(PODS, PODGROUPS, namespace=own_namespace) as seen:
        for name, replicas, annotations in (
            ("gang", _GANG, {BATCH_MIN_MEMBER: f"{_GANG}"}),
            ("alone", 1, {SKIP_PODGROUPER: "true"}),
        ):
            obj = _stateful_set(name, replicas, annotations)
            obj["metadata"]["namespace"] = own_namespace
            await api.request("POST", _STATEFUL_SETS.path(own_namespace), obj)
        await seen.until(lambda _: len(_placed(seen, "gang")) == _GANG, "the gang has nodes")
        await seen.until(lambda _: "GroupMissing" in _message(seen, "alone-0"), "the other waits")
        await seen.until(lambda _: len(_placed(seen, "alone")) == 1, "it starts", _WAITS_S)
        for name in ("gang", "alone"):
            await api.delete(_STATEFUL_SETS, own_namespace, name)
        await seen.until(lambda _: not seen.objects(PODGROUPS), "its PodGroup went with it")

    pods = [it.obj for it in seen.moments if it.key.resource == PODS]
    placed = [it for it in pods if it["spec"].get("nodeName") and _is_of(it, "gang")]
    assert all(POD_GROUP in it["metadata"].get("annotations", {}) for it in placed)
    groups = [it.obj for it in seen.moments if it.key.resource == PODGROUPS]
    assert {it["spec"]["minMember"] for it in groups} == {_GANG}


def _stateful_set(name: str, replicas: int, annotations: dict[str, str]) -> Obj:
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: "1"}}}
    labels = {"app": name}
    spec = {"schedulerName": SCHEDULER_NAME, "containers": [container]}
    return {
        "apiVersion": _STATEFUL_SETS.api_version,
        "kind": _STATEFUL_SETS.kind,
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _is_of(pod: Obj, name: str) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("app") == name)


def _placed(seen: Timeline, name: str) -> list[Obj]:
    return [it for it in seen.objects(PODS) if it["spec"].get("nodeName") and _is_of(it, name)]


def _message(seen: Timeline, pod: str) -> str:
    """Return why a pod has no node, by its own condition."""
    return "".join(
        it.get("message", "")
        for one in seen.objects(PODS)
        if one["metadata"]["name"] == pod
        for it in one["status"].get("conditions") or ()
        if it["type"] == "PodScheduled"
    )
