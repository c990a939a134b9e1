"""How the agent annotates its own pod, against an API server with that pod."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import pytest
from structlog.testing import capture_logs

from scheduler.agent.reserve import OwnPod, PodReplaced, own_pod, reserve
from tests.scheduler.agent.pod_server import KEY, PATH, UID, PodServer
from tests.support.clock import VirtualClock
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED_DEVICE
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver, RetryPolicy
from trainer_kai.kube.rest.command_transport import CommandTransport
from trainer_kai.kube.rest.response import Conflict, NotFound
from trainer_kai.service.log import logger

DEVICE: Final = "GPU-0a7dc3e1-7a5c-9f0b-6f53-19d1c2a3b4c5"
OTHER_DEVICE: Final = "GPU-6d1f0c2b-3b8e-4a77-8a5e-2f9d7c6b5a41"
OTHER_UID: Final = "c0ffee00-1f2e-4a3b-8c4d-5e6f7a8b9c0d"
POD: Final = OwnPod(Key(*KEY), UID)


class Cluster(NamedTuple):
    """An API server with the pod, and a client of it that never repeats a request itself."""

    server: PodServer
    client: Client
    clock: VirtualClock

    async def reserve(self, pod: OwnPod = POD) -> None:
        await reserve(self.client, pod, DEVICE, logger("test"))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with PodServer.open() as server:
        rest_config = RestConfig(server.url, StaticToken(""))
        clock = VirtualClock()
        client = Client(
            rest_config,
            CommandTransport(rest_config),
            clock,
            NoRequestObserver(),
            retry_policy=RetryPolicy(total_s=0),
        )
        yield Cluster(server, client, clock)
        await client.close()


@pytest.mark.parametrize("uid", [UID, ""])
@pytest.mark.parametrize("before", [{}, {RESERVED_DEVICE: OTHER_DEVICE}, {"team": "a"}])
async def test_the_pod_is_annotated(cluster: Cluster, before: dict[str, str], uid: str) -> None:
    """Also if it names a device that it no longer has; other annotations stay."""
    cluster.server.annotations.update(before)

    await cluster.reserve(POD._replace(uid=uid))

    assert cluster.server.asked == [f"GET {PATH}", f"PATCH {PATH}"]
    assert cluster.server.annotations == {**before, RESERVED_DEVICE: DEVICE}


async def test_an_annotated_pod_is_left_alone(cluster: Cluster) -> None:
    """A container that was restarted has the device that it had before."""
    cluster.server.annotations[RESERVED_DEVICE] = DEVICE

    await cluster.reserve()

    assert cluster.server.asked == [f"GET {PATH}"]


async def test_another_pod_of_the_same_name_is_left_alone(cluster: Cluster) -> None:
    """It has a device of its own, while the process of the pod before it still starts."""
    with pytest.raises(PodReplaced, match=f"has the uid {UID}, and ours {OTHER_UID}"):
        await cluster.reserve(POD._replace(uid=OTHER_UID))

    assert cluster.server.annotations == {}


async def test_a_pod_that_is_recreated_meanwhile_is_left_alone(cluster: Cluster) -> None:
    """The patch names the uid."""
    cluster.server.recreated_with = OTHER_UID

    with pytest.raises(Conflict):
        await cluster.reserve(POD._replace(uid=""))

    assert cluster.server.annotations == {}


async def test_a_pod_that_is_gone(cluster: Cluster) -> None:
    cluster.server.pod = None

    with pytest.raises(NotFound):
        await cluster.reserve()


async def test_it_waits_for_the_api_server(cluster: Cluster) -> None:
    cluster.server.unavailable = 3

    with capture_logs() as logs:
        reserving = asyncio.create_task(cluster.reserve())
        while not reserving.done():
            await asyncio.sleep(0.002)
            await cluster.clock.advance(0.1)
        await reserving

    assert [it["event"] for it in logs] == ["api server does not answer"] * 3 + ["device reserved"]
    waits_s = [it["wait_s"] for it in logs[:3]]
    assert [0.5 * 2**n <= wait_s <= 2**n for n, wait_s in enumerate(waits_s)] == [True] * 3, waits_s
    assert cluster.server.annotations == {RESERVED_DEVICE: DEVICE}


def test_the_environment_names_the_pod() -> None:
    """The uid may be missing; both names are needed, and all that are missing are named."""
    environ = {"POD_NAMESPACE": KEY[0], "POD_NAME": KEY[1]}

    assert own_pod(environ) == POD._replace(uid="")
    assert own_pod({**environ, "POD_UID": UID}) == POD
    with pytest.raises(ConfigError, match=r"POD_NAME: is not set.*\nPOD_NAMESPACE: is not set"):
        own_pod({"POD_UID": UID})
