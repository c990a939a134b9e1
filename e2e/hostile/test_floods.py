"""Floods of requests and of waiting objects, by which a tenant delays the gangs of others.

Each compares with the same chain without the flood, in the same run, and prints both.
"""

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from e2e.cluster.resources import PODS, PVCS, STORAGE_CLASSES, Obj
from e2e.cluster.timeline import State
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP
from e2e.fixtures.trainjobs import bare_pod
from e2e.hostile.conftest import TENANT, HostileTenant

pytestmark = [pytest.mark.soak, pytest.mark.serial]

_GANG: Final = 8
_TRIES: Final = 7
_WAITING: Final = 40  # pods that wait for more GPUs than there are
_RELABELS_PER_S: Final = 66
_SCRAPES_PER_S: Final = 70
_CLAIMS: Final = 400
_MEASURED_S: Final = 10.0
_CLASS: Final = "e2e-never"  # of volumes that are never provisioned


async def test_relabelled_pods(hostile_tenant: HostileTenant) -> None:
    """66 label changes a second on 40 waiting pods: another gang waits at most twice as long."""
    idle_s = await _wait_s(hostile_tenant, "idle")
    names = [f"waiting-{number}" for number in range(_WAITING)]
    await hostile_tenant.api.create_all(bare_pod(TENANT, name, TENANT, 64) for name in names)

    async def relabel(number: int) -> None:
        patch = {"metadata": {"labels": {"flood": str(number)}}}
        await hostile_tenant.api.merge(PODS, TENANT, names[number % _WAITING], patch)

    async with _flood(relabel, _RELABELS_PER_S):
        flooded_s = await _wait_s(hostile_tenant, "flooded")

    print(f"a gang of {_GANG}: idle {idle_s:.2f} s, {_RELABELS_PER_S} relabels/s {flooded_s:.2f} s")
    assert flooded_s <= 2 * idle_s


async def test_scraped_metrics(hostile_tenant: HostileTenant) -> None:
    """70 GET /metrics a second: likewise."""
    idle_s = await _wait_s(hostile_tenant, "idle")
    ready = hostile_tenant.installation.scheduler.ready_url
    url = ready.replace("/readyz", "/metrics")
    async with aiohttp.ClientSession() as session:

        async def scrape(_: int) -> None:
            async with session.get(url) as response:
                await response.read()

        async with _flood(scrape, _SCRAPES_PER_S):
            flooded_s = await _wait_s(hostile_tenant, "flooded")

    print(f"a gang of {_GANG}: idle {idle_s:.2f} s, {_SCRAPES_PER_S} GET/s {flooded_s:.2f} s")
    assert flooded_s <= 2 * idle_s


async def test_claims_that_never_bind(hostile_tenant: HostileTenant) -> None:
    """400 pods wait for their volumes: the scheduler is as idle as without them."""
    api = hostile_tenant.installation.cluster.api
    idle_s = await _busy_s(hostile_tenant)
    await api.create(
        {
            "apiVersion": STORAGE_CLASSES.api_version,
            "kind": STORAGE_CLASSES.kind,
            "metadata": {"name": _CLASS},
            "provisioner": "e2e.example/none",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    try:
        await hostile_tenant.api.create_all(map(_claim, range(_CLAIMS)))
        await hostile_tenant.api.create_all(map(_claiming_pod, range(_CLAIMS)))
        await asyncio.sleep(_MEASURED_S)
        flooded_s = await _busy_s(hostile_tenant)
        waited_s = await _wait_s(hostile_tenant, "flooded")
    finally:
        await api.until_no_pods(TENANT)
        await api.request("DELETE", PVCS.path(TENANT))
        await api.delete(STORAGE_CLASSES, None, _CLASS)
    print(f"CPU in {_MEASURED_S:g} s: idle {idle_s:.2f} s, {_CLAIMS} claims {flooded_s:.2f} s")
    print(f"a gang of {_GANG} beside them: {waited_s:.2f} s")
    assert flooded_s <= idle_s + _MEASURED_S / 20


@asynccontextmanager
async def _flood(send: Callable[[int], Awaitable[None]], per_s: int) -> AsyncIterator[None]:
    """Send so often a second meanwhile."""

    async def run() -> None:
        clock, sent = asyncio.get_running_loop(), 0
        began = clock.time()
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(_awaited(send(sent)))
                sent += 1
                await asyncio.sleep(max(0.0, began + sent / per_s - clock.time()))

    task = asyncio.create_task(run())
    try:
        await asyncio.sleep(1)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _awaited(sent: Awaitable[None]) -> None:
    await sent


async def _wait_s(tenant: HostileTenant, name: str) -> float:
    """Return how long a gang of red waits, from its last pod until all have nodes: the median."""
    waits = [await _one_wait_s(tenant, f"{name}-{number}") for number in range(_TRIES)]
    return statistics.median(waits)


async def _one_wait_s(tenant: HostileTenant, name: str) -> float:
    api, seen = tenant.installation.cluster.api, tenant.timeline
    group = {
        "apiVersion": PODGROUPS.api_version,
        "kind": PODGROUPS.kind,
        "metadata": {"namespace": "red", "name": name},
        "spec": {"minMember": _GANG, "queue": "red"},
    }
    await api.create(group)
    pods = [bare_pod("red", f"{name}-{rank}", "red", 1) for rank in range(_GANG)]
    for pod in pods:
        pod["metadata"]["annotations"] = {PODGROUP: name}
    await api.create_all(pods)
    await seen.until(_have_nodes(name), f"{name} runs", 120)
    moments = [it for it in seen.moments if it.key.name.startswith(f"{name}-")]
    created_s = max(it.at_s for it in moments if it.type == "ADDED")
    bound_s = max(
        min(it.at_s for it in moments if it.key.name == pod and "nodeName" in it.obj["spec"])
        for pod in {it.key.name for it in moments}
    )
    await api.until_no_pods("red")
    await api.delete(PODGROUPS, "red", name)
    return bound_s - created_s


def _have_nodes(name: str) -> Callable[[State], bool]:
    def holds(state: State) -> bool:
        pods = [
            it
            for key, it in state.items()
            if key.resource == PODS and key.name.startswith(f"{name}-")
        ]
        return len(pods) == _GANG and all("nodeName" in it["spec"] for it in pods)

    return holds


async def _busy_s(tenant: HostileTenant) -> float:
    """Return how much CPU time the scheduler takes in a while."""
    before = _cpu_ticks(tenant)
    await asyncio.sleep(_MEASURED_S)
    return (_cpu_ticks(tenant) - before) / 100


def _cpu_ticks(tenant: HostileTenant) -> int:
    pid = tenant.installation.scheduler.pid
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def _claim(number: int) -> Obj:
    return {
        "apiVersion": PVCS.api_version,
        "kind": PVCS.kind,
        "metadata": {"namespace": TENANT, "name": f"claim-{number}"},
        "spec": {
            "storageClassName": _CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def _claiming_pod(number: int) -> Obj:
    pod = bare_pod(TENANT, f"claiming-{number}", TENANT, 0)
    claim = {"claimName": f"claim-{number}"}
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    return pod
