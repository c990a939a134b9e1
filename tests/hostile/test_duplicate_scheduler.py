"""C1: which Leases and Deployments make our scheduler hold still, and for how long."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import pytest

from scheduler.shell.duplicate_guard import DuplicateSchedulerGuard
from tests.hostile.objects import TENANT
from tests.support.clock import VirtualClock
from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.policy.duplicate_scheduler import duplicate_scheduler_objects
from trainer_kai.service.log import logger

_OWN_IDENTITY: Final = Key("trainer-kai", "trainer-kai-scheduler")
_KAI: Final = "kai-scheduler"  # KAI's namespace, and our scheduler name
_LONGEST_S: Final = 2**31 - 1  # that a Lease may claim to be good for
_SOON_S: Final = 600.0  # a scheduler that is still paused then is stopped


class Api:
    """An API server with Leases and Deployments, by namespace and name."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.leases: dict[Key, dict[str, Any]] = {}
        self.deployments: dict[Key, dict[str, Any]] = {}
        self.renewed: Key | None = None  # the Lease that its holder renews every 2 s
        self.requests: list[str] = []

    def hold(self, key: Key, holder: str = "kai-0", duration_s: int = 15) -> None:
        """Have a Lease."""
        self.leases[key] = {"holderIdentity": holder, "leaseDurationSeconds": duration_s}

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Answer a read of one object, or of all with one name."""
        assert request.method == "GET"
        assert timeout_s > 0
        self.requests.append(request.target)
        *_, plural, name = request.path.split("/")
        if name in ("leases", "deployments"):
            wanted = dict(request.query)["fieldSelector"].removeprefix("metadata.name=")
            found = [it for key, it in self._of(name).items() if key.name == wanted]
            return _answer({"metadata": {}, "items": found})
        key = Key(request.path.split("/namespaces/")[1].split("/")[0], name)
        got = self._of(plural).get(key)
        return ApiResponse(404, b"{}") if got is None else _answer(got)

    def _of(self, plural: str) -> dict[Key, dict[str, Any]]:
        if plural == "deployments":
            return {key: _made(key, status=it) for key, it in self.deployments.items()}
        passed = int(self.clock.monotonic_s() // 2)
        return {
            key: _made(key, spec={**it, "renewTime": str(passed if key == self.renewed else 0)})
            for key, it in self.leases.items()
        }

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Follow nothing."""
        message = f"{request} is followed for {silence_s} s"
        raise NotImplementedError(message)

    async def close(self) -> None:
        """End nothing."""


def _made(key: Key, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": key.namespace, "name": key.name}, **parts}


def _answer(body: Any) -> ApiResponse:
    return ApiResponse(200, json.dumps(body).encode())


async def paused_s(api: Api, name: str = _KAI, own: Key = _OWN_IDENTITY) -> float:
    """Return for how long a scheduler that begins to lead holds still, at most *_SOON_S*."""
    client = Client(
        RestConfig("https://h", StaticToken(""), origin="the test"),
        api,
        api.clock,
        NoRequestObserver(),
    )
    guard = DuplicateSchedulerGuard(
        client,
        duplicate_scheduler_objects(name, (_KAI,), ("default", "team-a"), own),
        logger("test"),
    )
    while await guard.is_present() and api.clock.monotonic_s() < _SOON_S:
        await api.clock.advance(3)
    return api.clock.monotonic_s()


@pytest.mark.parametrize("namespace", [TENANT, "default"])
async def test_a_lease_in_another_namespace_counts_for_nothing(namespace: str) -> None:
    """The tenant renews it for ever, and it says that it is good for 68 years."""
    api = Api()
    api.renewed = Key(namespace, _KAI)
    api.hold(api.renewed, "tenant", _LONGEST_S)
    assert await paused_s(api) == 0
    assert not [it for it in api.requests if f"/{namespace}/" in it]


async def test_a_lease_keeps_us_away_for_a_minute_after_its_last_renewal() -> None:
    """Whatever it says of itself."""
    api = Api()
    api.hold(Key(_KAI, _KAI), duration_s=_LONGEST_S)
    assert 0 < await paused_s(api) <= 63


async def test_a_lease_that_says_less_is_believed() -> None:
    """Its holder is gone after the 15 s that it claims."""
    api = Api()
    api.hold(Key(_KAI, _KAI), duration_s=15)
    assert 15 <= await paused_s(api) <= 18


async def test_a_lease_without_a_holder_does_not_pause_us() -> None:
    """It was given back."""
    api = Api()
    api.hold(Key(_KAI, _KAI), holder="")
    assert await paused_s(api) == 0


@pytest.mark.parametrize("namespace", [_KAI, "trainer-kai"])
@pytest.mark.parametrize("name", [_KAI, "kai-scheduler-default", "kai-scheduler-team-a"])
async def test_a_lease_that_is_renewed_keeps_us_away(namespace: str, name: str) -> None:
    """In KAI's namespace and in ours, of any shard."""
    api = Api()
    api.renewed = Key(namespace, name)
    api.hold(api.renewed)
    assert await paused_s(api) >= _SOON_S


@pytest.mark.parametrize("name", ["kai-scheduler-default", "kai-scheduler-team-a"])
async def test_a_scheduler_that_is_ready_keeps_us_away(name: str) -> None:
    """A KAI of one replica holds no Lease."""
    api = Api()
    api.deployments[Key(_KAI, name)] = {"readyReplicas": 1}
    assert await paused_s(api) >= _SOON_S
    api.deployments[Key(_KAI, name)] = {"replicas": 1}
    began_s = api.clock.monotonic_s()
    assert await paused_s(api) == began_s


@pytest.mark.parametrize(
    "name", ["kai-operator", "pod-grouper", "binder", "queue-controller", "admission"]
)
async def test_what_else_belongs_to_kai_does_not_count(name: str) -> None:
    """They bind nothing without a scheduler; and a tenant's Deployment is not looked at."""
    api = Api()
    api.deployments |= {Key(_KAI, name): {"readyReplicas": 1}}
    api.deployments |= {Key(TENANT, "kai-scheduler-default"): {"readyReplicas": 1}}
    assert await paused_s(api) == 0


@pytest.mark.parametrize("name", ["trainer-kai-scheduler", "trainer-kai"])
async def test_we_are_no_other_scheduler(name: str) -> None:
    """Even where the scheduler name makes our Lease and our Deployment look like another's."""
    api = Api()
    api.renewed = _OWN_IDENTITY
    api.hold(_OWN_IDENTITY, "we")
    api.deployments[_OWN_IDENTITY] = {"readyReplicas": 2}
    assert await paused_s(api, name) == 0


async def test_it_costs_a_handful_of_reads() -> None:
    """Of single objects, by name: the number of tenants' Leases makes no difference."""
    api = Api()
    for number in range(1000):
        api.hold(Key(f"tenant-{number}", _KAI), duration_s=_LONGEST_S)
    assert await paused_s(api) == 0
    assert len(api.requests) <= 10
