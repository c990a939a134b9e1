"""The life of a workload of any kind: grouped, bound whole, reclaimed whole, back, Complete."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import PODS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import condition
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP
from e2e.fixtures.trainjobs import bare_pod, end_stage_now
from e2e.kinds.stand_ins import StandIn
from e2e.kinds.workloads import GPUS, NAME, KindRow, value_at

_CLAIM = "claim"
_WAIT_S = 60.0


async def live(
    cluster: Cluster, namespace: str, row: KindRow, operator: StandIn | None
) -> tuple[str, ...]:
    """Take a workload through its life; return its row of the table."""
    async with followed(cluster, row, namespace, operator) as seen:
        made = await create(cluster, row, namespace)
        await seen.until(lambda state: gpus_on_node(state) == GPUS, "all of it runs", _WAIT_S)
        first = _placed(seen.state)
        assert {it["metadata"]["annotations"][PODGROUP] for it in first} <= _names(row, made)
        await claim(cluster, seen, namespace)
        await seen.until(lambda state: gpus_on_node(state) == GPUS, "it is back", _WAIT_S)
        back = _placed(seen.state)
        assert not {_uid(it) for it in first} & {_uid(it) for it in back}
        if row.ending:
            await _end(cluster, row, seen)
        groups = {it["metadata"]["name"] for it in seen.objects(PODGROUPS)}
        assert groups >= _names(row, made)
        moments = [it.obj for it in seen.history() if it.key == (row.resource, *_key(made))]

    was_suspended = any(value_at(it, row.suspend_path) is True for it in moments)
    assert was_suspended == bool(row.suspend_path)
    way = f"by {'.'.join(row.suspend_path)}" if row.suspend_path else "by deleting its pods"
    return (
        row.resource.kind,
        "real" if operator is None else "stand-in",
        ", ".join(f"pg-NAME-UID{it}" for it in row.podgroups),
        f"{len(first)} pods",
        f"{way}, {len(back)} pods again",
        "yes" if row.ending else "does not end",
    )


@asynccontextmanager
async def followed(
    cluster: Cluster, row: KindRow, namespace: str, operator: StandIn | None
) -> AsyncIterator[Timeline]:
    """Record what happens while the operator works; delete the workload at the end."""
    more = operator.follows if operator is not None else (row.resource, PODS)
    resources = [*dict.fromkeys((*more, PODGROUPS))]
    async with cluster.timeline(*resources, namespace=namespace) as seen:
        task = asyncio.ensure_future(operator.run(cluster, seen)) if operator is not None else None
        try:
            yield seen
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
            await cluster.api.delete(row.resource, namespace, NAME, propagationPolicy="Background")


async def create(cluster: Cluster, row: KindRow, namespace: str) -> Obj:
    path = row.resource.path(namespace)
    made: Obj = await cluster.api.request("POST", path, row.manifest(namespace))
    return made


async def claim(cluster: Cluster, seen: Timeline, namespace: str) -> None:
    """Let the owner of the GPUs use them for a moment."""
    pod = bare_pod(namespace, _CLAIM, "owner", GPUS)
    pod["metadata"]["annotations"] = {RUN_SECONDS: "1s"}
    await cluster.api.request("POST", PODS.path(namespace), pod)
    await seen.until(_is_done, "the owner has run", _WAIT_S)


async def _end(cluster: Cluster, row: KindRow, seen: Timeline) -> None:
    def ending(state: State) -> list[Obj]:
        return [it for it in _placed(state, gpus=0) if row.ending in it["metadata"]["name"]]

    await seen.until(lambda state: bool(ending(state)), "the pod that ends it runs", _WAIT_S)
    await end_stage_now(cluster, ending(seen.state))
    await seen.until(lambda state: _is_ended(row, state), "it has ended", _WAIT_S)


def gpus_on_node(state: State) -> int:
    """Return the GPUs of the workload on the node, none while a pod of it terminates."""
    pods = _placed(state)
    if any(it["metadata"].get("deletionTimestamp") for it in pods):
        return 0
    return sum(_gpus(it) for it in pods)


def _placed(state: State, gpus: int = 1) -> list[Obj]:
    """Return the pods of the workload on the node that request so many GPUs, or more."""
    pods = (it for key, it in state.items() if key.resource == PODS and key.name != _CLAIM)
    return [it for it in pods if it["spec"].get("nodeName") and _gpus(it) >= gpus]


def _gpus(pod: Obj) -> int:
    (container,) = pod["spec"]["containers"]
    return int(container.get("resources", {}).get("limits", {}).get(GPU, 0))


def _is_done(state: State) -> bool:
    return any(
        it["status"].get("phase") == "Succeeded" for key, it in state.items() if key.name == _CLAIM
    )


def _is_ended(row: KindRow, state: State) -> bool:
    of_kind = (it for key, it in state.items() if key.resource == row.resource)
    obj = next(it for it in of_kind if it["metadata"]["name"] == NAME)
    name, field = row.ended
    return condition(obj, name) if name else obj.get("status", {}).get(field) == "Complete"


def _names(row: KindRow, made: Obj) -> set[str]:
    return {f"pg-{NAME}-{_uid(made)}{suffix}" for suffix in row.podgroups}


def _uid(obj: Obj) -> str:
    return str(obj["metadata"]["uid"])


def _key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
