"""A rotation that is cut off anywhere is continued from the objects alone."""

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.support.clock import VirtualClock
from tests.support.size import seeds
from tests.webhook.fake_api_server import DAY_S, HOSTS, FakeApiServer, Replica, short_lived
from trainer_kai.kube.rest.request import Request
from webhook.tls.verify import inspect_content

# Made, renewed, a second authority, both published, signed by it, the first one dropped.
QUICKLY = short_lived(authority_days=1300 / DAY_S, check_s=20.0)
LIFE_S = 1300
WRITES = 9


def crash_at(write: int, *, is_done: bool) -> Callable[[Request], None]:
    """Return what ends a process at its so-manieth write, before or right after it is done."""
    seen = 0

    def crash(request: Request) -> None:
        nonlocal seen
        if is_done and seen == write:
            seen += 1
            raise asyncio.CancelledError
        if request.method != "GET":
            seen += 1
            if not is_done and seen == write:
                raise asyncio.CancelledError

    return crash


async def until(clock: VirtualClock, seconds: float, replicas: list[Replica]) -> None:
    end_s = clock.monotonic_s() + seconds
    while clock.monotonic_s() < end_s:
        await clock.advance(5)
        assert all(it.is_trusted() for it in replicas if it.certificate.tls.pair is not None)


async def test_how_many_writes_there_are() -> None:
    """So that the next test leaves out none of them."""
    api_server, clock = FakeApiServer(), VirtualClock()
    api_server.configure("")
    replica = await Replica(api_server, clock, QUICKLY).start()
    await until(clock, 1200, [replica])

    assert [it.split()[0] for it in api_server.writes()] == [
        "POST",
        "PATCH",
        "PUT",  # renewed
        "PUT",  # renewed
        "PUT",  # a second authority
        "PATCH",
        "PUT",  # it signs
        "PUT",  # the first one is dropped
        "PATCH",
    ]
    assert len(api_server.writes()) == WRITES
    await replica.kill()


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
async def test_a_killed_replica_is_continued(write: int, *, is_done: bool) -> None:
    """By a process that is started half a minute later and knows nothing."""
    api_server, clock = FakeApiServer(), VirtualClock()
    api_server.configure("")
    api_server.before_request = crash_at(write, is_done=is_done)
    first = Replica(api_server, clock, QUICKLY).run()
    while not first.task.done():
        await clock.advance(5)
        assert write <= 2 or first.is_trusted()  # no replica is, before the authority is published
    await clock.advance(30)
    second = await Replica(api_server, clock, QUICKLY).start()
    await clock.advance(2)
    await until(clock, LIFE_S, [second])

    assert second.unready == {}
    assert not inspect_content(api_server.content, HOSTS).unusable_reason(clock.now())
    await second.kill()


@pytest.mark.parametrize("seed", seeds(2))
async def test_whatever_happens_it_ends_well(seed: int) -> None:
    """Up to three replicas come and go, and the API server with them."""
    api_server, clock, lot = FakeApiServer(), VirtualClock(), random.Random(seed)
    api_server.configure("")
    replicas = [await Replica(api_server, clock, QUICKLY).start()]
    await clock.advance(30)
    for _ in range(40):
        match lot.choice(["come", "go", "pause", "wait", "wait", "wait"]):
            case "come" if len(replicas) < 3:
                replicas.append(await Replica(api_server, clock, QUICKLY).start())
            case "go" if len(replicas) > 1:
                await replicas.pop(lot.randrange(len(replicas))).kill()
            case "pause":
                api_server.fail_status = 503
                await until(clock, lot.randrange(40), replicas)
                api_server.fail_status = None
        await until(clock, lot.randrange(90), replicas)
    await until(clock, 300, replicas)
    if len({it.shown_certificate for it in replicas}) > 1:  # it was renewed just now
        await until(clock, 60, replicas)

    assert [it.unready for it in replicas] == [{}] * len(replicas)
    assert len({it.shown_certificate for it in replicas}) == 1
    for replica in replicas:
        await replica.kill()
