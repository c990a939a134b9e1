"""A rotation that is cut off anywhere is continued from the objects alone."""

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.support.clock import VirtualClock
from tests.webhook.store import DAY_S, HOSTS, Replica, Store, short
from trainer_kai.kube.request import Request
from webhook.trust import look

# Made, renewed, a second authority, both published, signed by it, the first one dropped.
QUICKLY = short(authority_days=1300 / DAY_S, check_s=20.0)
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
    """Let time pass; whoever shows something is trusted all the time."""
    end_s = clock.monotonic_s() + seconds
    while clock.monotonic_s() < end_s:
        await clock.advance(5)
        assert all(it.is_trusted() for it in replicas if it.keeper.shown.pair is not None)


async def test_how_many_writes_there_are() -> None:
    """So that the next test leaves out none of them."""
    store, clock = Store(), VirtualClock()
    store.configure("")
    replica = await Replica(store, clock, QUICKLY).start()
    await until(clock, 1200, [replica])

    assert [it.split()[0] for it in store.writes()] == [
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
    assert len(store.writes()) == WRITES
    await replica.kill()


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
async def test_whoever_is_killed_is_continued(write: int, *, is_done: bool) -> None:
    """By a process that is started half a minute later and knows nothing."""
    store, clock = Store(), VirtualClock()
    store.configure("")
    store.before = crash_at(write, is_done=is_done)
    first = Replica(store, clock, QUICKLY).run()
    while not first.task.done():
        await clock.advance(5)
        assert write <= 2 or first.is_trusted()  # nobody is, before anything is published
    await clock.advance(30)
    second = await Replica(store, clock, QUICKLY).start()
    await clock.advance(2)
    await until(clock, LIFE_S, [second])

    assert second.unready == {}
    assert not look(store.content, HOSTS).unusable(clock.now())
    await second.kill()


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_it_ends_well(seed: int) -> None:
    """Up to three replicas come and go, and the API server with them."""
    store, clock, lot = Store(), VirtualClock(), random.Random(seed)
    store.configure("")
    replicas = [await Replica(store, clock, QUICKLY).start()]
    await clock.advance(30)
    for _ in range(40):
        match lot.choice(["come", "go", "pause", "wait", "wait", "wait"]):
            case "come" if len(replicas) < 3:
                replicas.append(await Replica(store, clock, QUICKLY).start())
            case "go" if len(replicas) > 1:
                await replicas.pop(lot.randrange(len(replicas))).kill()
            case "pause":
                store.refuse = 503
                await until(clock, lot.randrange(40), replicas)
                store.refuse = None
        await until(clock, lot.randrange(90), replicas)
    await until(clock, 300, replicas)
    if len({it.shows for it in replicas}) > 1:  # it was renewed just now
        await until(clock, 60, replicas)

    assert [it.unready for it in replicas] == [{}] * len(replicas)
    assert len({it.shows for it in replicas}) == 1
    for replica in replicas:
        await replica.kill()
