"""What must not lose a device or give it twice: kills at every write, reclaim, nodes that go."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from e2e.claims.devices import (
    WATCHED,
    check_ledger,
    claimed_devices,
    device,
    leaked,
    one_gpu,
    resource_slice,
    template,
)
from e2e.claims.workloads import (
    allocated,
    check_placed,
    delete_pods,
    make_runtime,
    placed,
    pod,
    podgroup,
    start_scheduler,
    trainjob,
)
from e2e.cluster.nodes import NodeShape
from e2e.cluster.patience import patience
from e2e.cluster.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, TRAINJOBS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import condition
from e2e.fixtures.install import apply
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import pods_in
from e2e.fixtures.trainjobs import make_queue, resumptions, suspensions

_NODES: Final = ("node-0", "node-1")
_MOST: Final = 20  # writes of a bind, or of a release


class _Kills(NamedTuple):
    """A gang of two pods that is bound while the scheduler is killed after each of its writes."""

    refusals: int  # of the first binds, after which what was written is taken back
    writes: int  # at least


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(_Kills(0, 6), id="bind"),  # two finalizers, allocations and binds
        pytest.param(_Kills(1, 8), id="refused-bind", marks=pytest.mark.soak),
    ],
)
async def test_killed_after_each_write_of_a_bind(
    kills: _Kills, claims_installation: Installation, claims_namespace: str
) -> None:
    """The next process binds the pods, and nothing is left in the end."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu()))
    for number in range(1, _MOST):
        names = {f"pod-{number}-{n}" for n in range(2)}
        async with cluster.timeline(*WATCHED, namespace=claims_namespace) as seen:
            _refuse_binds(claims_installation, kills.refusals)
            _kill_after(claims_installation, number, _is_bind_write)
            await apply(cluster, podgroup(claims_namespace, f"gang-{number}", 2))
            for name in names:
                await api.create(pod(claims_namespace, name, f"gang-{number}"))
            are_placed = _are_placed(names)
            has_struck = await _is_killed(claims_installation, _holds(seen, are_placed))
            _refuse_binds(claims_installation, 0)
            if has_struck:
                await start_scheduler(claims_installation)
            await seen.until(are_placed, "the gang runs", 90)
            await seen.settle()
            check_placed(seen)
            await delete_pods(claims_installation, claims_namespace)
            await seen.until(lambda state: not allocated(state), "all devices are free", 60)
        check_ledger(seen)
        if not has_struck:
            break
    assert number > kills.writes


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_killed_after_each_write_of_a_release(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """A claim whose pod was never bound is free again, and the pod is bound later."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu()))
    for number in range(1, _MOST):
        name = f"pod-{number}"
        async with cluster.timeline(*WATCHED, namespace=claims_namespace) as seen:
            _kill_after(claims_installation, 2, _is_bind_write)  # it is allocated, and not bound
            await api.create(pod(claims_namespace, name))
            assert await _is_killed(claims_installation, lambda: False)
            await _cordon(claims_installation, *_NODES)
            _kill_after(claims_installation, number, _is_release_write)
            await start_scheduler(claims_installation)
            is_free = _holds(seen, lambda state: not allocated(state))
            has_struck = await _is_killed(claims_installation, is_free)
            if has_struck:
                await start_scheduler(claims_installation)
            await seen.until(lambda state: not allocated(state), "the device is free", 90)
            assert not placed(seen.state)
            await _cordon(claims_installation)
            await seen.until(_are_placed({name}), "it is bound", 60)
            check_placed(seen)
            await delete_pods(claims_installation, claims_namespace)
            await seen.until(lambda state: not allocated(state), "all devices are free", 60)
        check_ledger(seen)
        if not has_struck:
            break
    assert number == 3, "the pod is marked, and the claim is released"


def _are_placed(names: set[str]) -> Callable[[State], bool]:
    return lambda state: names <= placed(state)


def _holds(seen: Timeline, is_so: Callable[[State], bool]) -> Callable[[], bool]:
    return lambda: is_so(seen.state)


def _refuse_binds(installation: Installation, count: int) -> None:
    def is_bind(_method: str, path: str) -> bool:
        return path.endswith("/binding")

    installation.proxy.burst(403, count, applies=is_bind, retry_after_s=None)


def _kill_after(
    installation: Installation, number: int, is_write: Callable[[str, str, bytes], bool]
) -> None:
    installation.proxy.strike(number, is_write, installation.scheduler.process.kill_nowait)


def _is_bind_write(method: str, path: str, _body: bytes) -> bool:
    if method == "PATCH" and "/resourceclaims/" in path:
        return True
    return method == "POST" and path.endswith("/binding")


def _is_release_write(method: str, path: str, body: bytes) -> bool:
    if method != "PATCH" or not path.endswith("/status"):
        return False
    return "/resourceclaims/" in path or b"claims-released" in body


async def _is_killed(installation: Installation, or_else: Callable[[], bool]) -> bool:
    """Wait until the scheduler is killed, or something else is so; say which."""
    async with patience(60):
        while not (installation.proxy.has_struck or or_else()):
            await asyncio.sleep(0.1)
    has_struck = installation.proxy.has_struck
    installation.proxy.withdraw_strike()
    return has_struck


async def _cordon(installation: Installation, *nodes: str) -> None:
    """Let only these nodes take no pods."""
    for name in _NODES:
        fields = {"spec": {"unschedulable": name in nodes}}
        await installation.cluster.api.merge(NODES, None, name, fields)


async def test_devices_are_reclaimed_and_lent_again(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """A TrainJob with all devices is suspended for a queue that owns them, and resumed after."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    installed = await make_runtime(claims_installation, claims_namespace)
    await make_queue(cluster, "devices-owner", 4, claims_namespace)
    await make_queue(cluster, "devices-guest", 0, claims_namespace)
    async with cluster.timeline(*WATCHED, TRAINJOBS, namespace=claims_namespace) as seen:
        await api.create(trainjob(installed, claims_namespace, "guest", "devices-guest", 4))
        await seen.until(_has_devices("guest", 4), "the guest has all devices", 60)
        await api.create(trainjob(installed, claims_namespace, "owner", "devices-owner", 4))
        await seen.until(_has_devices("owner", 4), "the owner has its devices", 60)
        check_placed(seen)
        await api.delete(TRAINJOBS, claims_namespace, "owner")
        await seen.until(_has_devices("guest", 4), "the devices are lent again", 60)
        check_placed(seen)
        history = seen.history()
        await api.delete(TRAINJOBS, claims_namespace, "guest")
        await seen.until(lambda state: not allocated(state), "all devices are free", 60)
    assert (suspensions(history, "guest"), resumptions(history, "guest")) == (1, 1)
    check_ledger(seen)
    assert not leaked(seen.state)


def _pods_of(state: State, job: str) -> list[Obj]:
    """Return the pods of a TrainJob that are on nodes and not deleted."""
    label = "jobset.sigs.k8s.io/jobset-name"
    return [
        it
        for it in pods_in(state)
        if it["metadata"].get("labels", {}).get(label) == job
        and "deletionTimestamp" not in it["metadata"]
        and it["spec"].get("nodeName")
    ]


def _has_devices(job: str, count: int) -> Callable[[State], bool]:
    """Return a test whether a TrainJob alone has devices, and has so many."""
    return lambda state: len(_pods_of(state, job)) == count == allocated(state)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", ["tainted", pytest.param("deleted", marks=pytest.mark.soak)])
async def test_a_node_with_devices_goes(
    how: str, claims_installation: Installation, claims_namespace: str
) -> None:
    """The gang comes again on the other node, with the devices there."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    installed = await make_runtime(claims_installation, claims_namespace)
    await _cordon(claims_installation, "node-1")
    async with cluster.timeline(*WATCHED, TRAINJOBS, namespace=claims_namespace) as seen:
        await api.create(trainjob(installed, claims_namespace, "gang", "default-queue", 2))
        await seen.until(_has_devices("gang", 2), "it runs", 60)
        await _cordon(claims_installation)
        if how == "tainted":
            taint = {"key": "example.com/broken", "effect": "NoExecute"}
            await api.merge(NODES, None, "node-0", {"spec": {"taints": [taint]}})
        else:
            await api.delete(NODES, None, "node-0")  # Kubernetes waits 40 s before it deletes pods
        await seen.until(
            lambda state: _nodes_of(state) == {"node-1"} and _has_devices("gang", 2)(state),
            "it runs on the other node",
            120,
        )
        check_placed(seen)
        if how == "tainted":
            await api.merge(NODES, None, "node-0", {"spec": {"taints": []}})
        else:
            await cluster.add_nodes(1, NodeShape(gpus=0))
        await api.delete(TRAINJOBS, claims_namespace, "gang")
        await seen.until(lambda state: not allocated(state), "all devices are free", 60)
    check_ledger(seen)
    assert not leaked(seen.state)
    assert not any(condition(it, "Failed") for it in seen.objects(TRAINJOBS))


def _nodes_of(state: State) -> set[str]:
    return {it["spec"]["nodeName"] for it in _pods_of(state, "gang")}


async def test_a_device_goes_from_under_its_pod(
    claims_installation: Installation, claims_namespace: str
) -> None:
    """The pod keeps its claim; other pods get the remaining devices, none the lost one."""
    cluster, api = claims_installation.cluster, claims_installation.cluster.api
    await api.create(template(claims_namespace, "one-gpu", one_gpu()))
    await _cordon(claims_installation, "node-1")
    async with cluster.timeline(*WATCHED, namespace=claims_namespace) as seen:
        await api.create(pod(claims_namespace, "old"))
        await seen.until(_are_placed({"old"}), "a pod runs")
        (claim,) = seen.objects(RESOURCE_CLAIMS)
        ((_, _, lost),) = claimed_devices(claim)
        changed = resource_slice("node-0", [device("new-0"), device("new-1")], 2)
        await api.merge(RESOURCE_SLICES, None, "node-0-gpus", {"spec": changed["spec"]})
        for n in range(3):
            await api.create(pod(claims_namespace, f"new-{n}"))
        await seen.until(lambda state: len(placed(state)) == 3, "two more pods run")
        await seen.settle()
        has = sorted(it for of in seen.objects(RESOURCE_CLAIMS) for *_, it in claimed_devices(of))
        assert has == sorted([lost, "new-0", "new-1"])
        await api.delete(PODS, claims_namespace, "old")
        await seen.until(lambda state: allocated(state) == 2, "the claim of a lost device is free")
        await _cordon(claims_installation)
        await seen.until(lambda state: allocated(state) == 3, "the last pod runs on the other node")
        restored = resource_slice("node-0", [device(f"gpu-{n}") for n in range(2)], 3)
        await api.merge(RESOURCE_SLICES, None, "node-0-gpus", {"spec": restored["spec"]})
        await delete_pods(claims_installation, claims_namespace)
        await seen.until(lambda state: not allocated(state), "all devices are free", 60)
    check_ledger(seen)
