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

from e2e.cluster.api import Api
from e2e.cluster.resources import PODS, PVCS, STORAGE_CLASSES, Obj
from e2e.cluster.timeline import State
from e2e.cluster.together import together
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.podgroups import PODGROUP
from e2e.fixtures.trainjobs import bare_pod
from e2e.hostile.conftest import TENANT, HostileTenant

pytestmark = [pytest.mark.soak, pytest.mark.serial]

_GANG: Final = 8
_TRIES: Final = 9
_WAITING: Final = 40  # pods that wait for more GPUs than there are
_RELABELS_PER_S: Final = 66
_SCRAPES_PER_S: Final = 70
_CLAIMS: Final = 400
_MEASURED_S: Final = 20.0
_CLASS: Final = "e2e-never"  # of volumes that are never provisioned
_PLANS: Final = "trainer_kai_plan_seconds_count"


async def test_relabelled_pods(hostile_tenant: HostileTenant) -> None:
    """66 label changes a second on 40 waiting pods start few plans, and no gang waits for these.

    The API server, too, has to do with it: the same changes of pods of another scheduler are what
    the waits are compared with.
    """
    idle_s = await _wait_s(hostile_tenant, "idle")
    figures = []
    for scheduler in ("other", "kai-scheduler"):
        pods = [bare_pod(TENANT, f"{scheduler}-{it}", TENANT, 64) for it in range(_WAITING)]
        for pod in pods:
            pod["spec"]["schedulerName"] = scheduler
        await hostile_tenant.api.create_all(pods)
        relabel = _relabelling(hostile_tenant, [it["metadata"]["name"] for it in pods])
        async with _flood(relabel, _RELABELS_PER_S):
            before = await _plans(hostile_tenant)
            await asyncio.sleep(_MEASURED_S)
            plans = await _plans(hostile_tenant) - before
            figures.append((await _wait_s(hostile_tenant, f"beside-{scheduler}"), plans))

    (other_s, _), (ours_s, plans) = figures
    print(f"a gang of {_GANG}: idle {idle_s:.2f} s, {_RELABELS_PER_S} relabels/s {ours_s:.2f} s")
    print(f"({other_s:.2f} s beside pods of another scheduler); {plans} plans in {_MEASURED_S:g} s")
    assert plans <= _RELABELS_PER_S * _MEASURED_S / 10
    assert ours_s <= 2 * other_s


def _relabelling(tenant: HostileTenant, names: list[str]) -> Callable[[int], Awaitable[None]]:
    async def relabel(number: int) -> None:
        patch = {"metadata": {"labels": {"flood": str(number)}}}
        await tenant.api.merge(PODS, TENANT, names[number % len(names)], patch)

    return relabel


async def _plans(tenant: HostileTenant) -> int:
    """Return how many plans the scheduler has made."""
    async with aiohttp.ClientSession() as session, session.get(_metrics_url(tenant)) as response:
        lines = (await response.text()).splitlines()
    return int(float(next(it.split()[1] for it in lines if it.startswith(_PLANS))))


def _metrics_url(tenant: HostileTenant) -> str:
    return tenant.installation.scheduler.ready_url.replace("/readyz", "/metrics")


async def test_scraped_metrics(hostile_tenant: HostileTenant) -> None:
    """70 GET /metrics a second take a part of the processor, and no turn of the plan's."""
    idle_s = await _wait_s(hostile_tenant, "idle")
    url = _metrics_url(hostile_tenant)
    async with aiohttp.ClientSession() as session:

        async def scrape(_: int) -> None:
            async with session.get(url) as response:
                await response.read()

        async with _flood(scrape, _SCRAPES_PER_S):
            flooded_s = await _wait_s(hostile_tenant, "flooded")

    print(f"a gang of {_GANG}: idle {idle_s:.2f} s, {_SCRAPES_PER_S} GET/s {flooded_s:.2f} s")
    assert flooded_s <= 4 * idle_s


async def test_claims_that_never_bind(hostile_tenant: HostileTenant) -> None:
    """400 pods that wait for their volumes cost the scheduler no more than 400 that run."""
    api = hostile_tenant.installation.cluster.api
    await hostile_tenant.api.create_all(
        bare_pod(TENANT, f"plain-{number}", TENANT, 0) for number in range(_CLAIMS)
    )
    running_s = await _busy_s(hostile_tenant)
    await _delete_pods(api)
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
        waiting_s = await _busy_s(hostile_tenant)
    finally:
        await _delete_pods(api)
        await api.request("DELETE", PVCS.path(TENANT))
        await api.delete(STORAGE_CLASSES, None, _CLASS)
    print(f"CPU in {_MEASURED_S:g} s: {_CLAIMS} pods run {running_s:.2f} s, wait {waiting_s:.2f} s")
    assert waiting_s <= 2 * running_s


async def _delete_pods(api: Api) -> None:
    """Delete the tenant's pods, a few at a time: the record of many at once would have gaps."""
    pods, _ = await api.list(PODS, TENANT)
    names = [it["metadata"]["name"] for it in pods]
    await together((api.delete(PODS, TENANT, it, gracePeriodSeconds=0) for it in names), 4)


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
    await api.request("POST", PODGROUPS.path("red"), group)
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
    """Return how much CPU time the scheduler takes, once what was created is settled."""
    await asyncio.sleep(_MEASURED_S)
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
