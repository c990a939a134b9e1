"""Another scheduler with our name: how it is detected, and what is reported about it."""

import asyncio
from typing import Any

import structlog

from scheduler.shell.duplicate_guard import DuplicateSchedulerGuard
from tests.support.fakes.recording_transport import ClientRun, GivenAnswer, json_answer
from trainer_kai.api.meta import Key
from trainer_kai.policy.duplicate_scheduler import duplicate_scheduler_objects
from trainer_kai.service.log import logger

_LOCATIONS = duplicate_scheduler_objects(
    "kai-scheduler", ("kai",), ("default",), Key("us", "trainer-kai-scheduler")
)
_FIRST_LEASE = Key("us", "kai-scheduler")  # of all that are read, in this order
_MISSING = json_answer({"message": "there is none"}, 404)
_NONE = (_MISSING,) * 6


def lease(renewed: str, holder: str = "it", key: Key = _FIRST_LEASE) -> GivenAnswer:
    """Answer with a Lease."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return json_answer(_made(key, spec=spec))


def deployment(key: Key, ready: int) -> GivenAnswer:
    """Answer with a Deployment."""
    return json_answer(_made(key, status={"readyReplicas": ready}))


def _made(key: Key, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": key.namespace, "name": key.name}, **parts}


def guard_of(run: ClientRun) -> DuplicateSchedulerGuard:
    return DuplicateSchedulerGuard(run.client, _LOCATIONS, logger("test"))


async def wait_time_s(run: ClientRun) -> float:
    began_s = run.clock.monotonic_s()
    await run.run_to_end(guard_of(run).wait_until_gone())
    return run.clock.monotonic_s() - began_s


async def test_none_is_there() -> None:
    """That takes one read for each Lease and each Deployment that there may be."""
    run = ClientRun(_MISSING)
    assert await wait_time_s(run) == 0
    leases, deployments = ("coordination.k8s.io/v1", "leases"), ("apps/v1", "deployments")
    assert run.request_lines == [
        f"GET /apis/{group}/namespaces/{namespace}/{plural}/{name}"
        for (group, plural), names in (
            (leases, ("kai-scheduler", "kai-scheduler-default")),
            (deployments, ("kai-scheduler-default",)),
        )
        for namespace in ("us", "kai")
        for name in names
    ]


async def test_one_that_died_is_waited_for_once() -> None:
    """Its Lease is there, and does not change any more."""
    answers = [lease("1")] * 5  # at 0, 3, … 12 s
    assert await wait_time_s(ClientRun(*answers, lease("1"), _MISSING)) == 15


async def test_one_that_lives_is_waited_for() -> None:
    """As long as it renews."""
    renewed = [lease(str(i)) for i in range(20)]
    assert await wait_time_s(ClientRun(*renewed, _MISSING)) == 60


async def test_one_that_comes_later_is_noticed() -> None:
    """What it is, and what to do, stands in one sentence."""
    key = Key("kai", "kai-scheduler-default")
    run = ClientRun(*_NONE, *_NONE[:3], lease("1", "kai-0", key), _MISSING)
    duplicate_guard = guard_of(run)
    task = asyncio.create_task(duplicate_guard.wait_until_present())
    await run.clock.advance(10)
    await task
    assert duplicate_guard.pause_reason == (
        "scheduler paused: another scheduler holds Lease kai/kai-scheduler-default (holder kai-0);"
        " stop the other scheduler, or give trainer-kai another name (setting scheduler_name)"
    )


async def test_one_without_a_lease_is_named_by_its_deployment() -> None:
    """KAI elects a leader only among several replicas."""
    duplicate_guard = guard_of(
        ClientRun(*_NONE[:5], deployment(Key("kai", "kai-scheduler-default"), 1))
    )
    assert await duplicate_guard.is_present()
    assert (
        "is ready as Deployment kai/kai-scheduler-default (replicas 1);"
        in duplicate_guard.pause_reason
    )


async def test_what_may_not_be_read_is_logged_once() -> None:
    """All else is still looked at."""
    forbidden = json_answer({"message": "no"}, 403)
    duplicate_guard = guard_of(ClientRun(*((forbidden,) * 4 + _NONE[:2]) * 2, lease("1")))
    with structlog.testing.capture_logs() as logs:
        assert [await duplicate_guard.is_present() for _ in range(3)] == [False, False, True]
    unread = [
        it["object"] for it in logs if it["event"] == "duplicate scheduler check not permitted"
    ]
    assert len(unread) == 4
    assert unread[0] == "leases.coordination.k8s.io us/kai-scheduler"


async def test_without_an_answer_it_stays_as_it_was() -> None:
    """A scheduler that is paused does not begin because the API server fails."""
    broken = json_answer({"message": "no"}, 422)
    duplicate_guard = guard_of(ClientRun(broken, lease("1"), broken))
    assert [await duplicate_guard.is_present() for _ in range(3)] == [False, True, True]
