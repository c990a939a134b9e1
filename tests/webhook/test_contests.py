"""Somebody else writes what we keep: how long that is put right, and when it ends."""

from datetime import datetime

from structlog.testing import capture_logs

from tests.support.clock import VirtualClock
from tests.webhook.store import Replica, Store, encoded


async def test_of_two_installations_one_gives_way(clock: VirtualClock) -> None:
    """Each has a Secret of its own, and both call the same Service: that ends, and is told."""
    mine, other = Store(), Store()
    mine.configure("")
    other.configurations = mine.configurations
    other._next_version = mine._next_version  # type: ignore[method-assign]
    replicas = [await Replica(it, clock).start() for it in (mine, other)]
    with capture_logs() as logs:
        await clock.advance(600)
    writes = len(mine.writes()) + len(other.writes())
    await clock.advance(2400)
    later = len(mine.writes()) + len(other.writes())
    await clock.advance(3 * 3600)

    assert later == writes < 20
    assert len(mine.writes()) + len(other.writes()) < 4 * writes  # it is tried once an hour
    assert sorted(len(it.unready) for it in replicas) == [0, 1]
    said = [it["error"] for it in logs if it["event"] == "certificate not kept up"]
    assert any("somebody else writes another authority into Mutating" in it for it in said)


async def test_who_disturbs_now_and_then_is_no_contestant(
    store: Store, clock: VirtualClock
) -> None:
    """Somebody's old manifest is applied once a week; each time it is put right."""
    store.configure("")
    replica = await Replica(store, clock).start()
    for _ in range(6):
        await clock.advance(4000)
        store.publish("eA==")
        await clock.advance(60)

        assert (store.bundles(), replica.unready) == ({encoded(store.content.authorities)}, {})


async def test_who_has_stopped_is_no_contestant(store: Store, clock: VirtualClock) -> None:
    """At once where his authority is gone, and within an hour where it is still there."""
    store.configure("")
    replica = await Replica(store, clock).start()
    for _ in range(6):
        store.publish("eA==")
        await clock.advance(60)
    contested = store.bundles(), [*replica.unready]
    store.publish("")
    await clock.advance(60)
    gone = store.bundles()
    store.publish("eA==")
    await clock.advance(4000)

    assert contested == ({"eA=="}, ["trusted"])
    assert gone == store.bundles() == {encoded(store.content.authorities)}
    assert replica.unready == {}


async def test_two_clocks_do_not_write_for_ever(store: Store, clock: VirtualClock) -> None:
    """To one whose year is another all that is made here has ended: he says so and stops."""
    ahead = _Ahead(clock)
    replicas = [await Replica(store, it).start() for it in (clock, ahead)]
    with capture_logs() as logs:
        await clock.advance(600)
    before = len(store.writes())
    await clock.advance(2400)

    assert len(store.writes()) == before < 30
    assert any("a clock that is wrong?" in it.get("error", "") for it in logs)
    assert replicas[0].keeper.shown.pair is not None


class _Ahead(VirtualClock):
    """A clock that is two years ahead of another one."""

    def __init__(self, true: VirtualClock) -> None:
        super().__init__()
        self._true = true

    def monotonic_s(self) -> float:
        return self._true.monotonic_s()

    def now(self) -> datetime:
        now = self._true.now()
        return now.replace(year=now.year + 2)

    async def sleep(self, seconds: float) -> None:
        await self._true.sleep(seconds)

    async def advance(self, seconds: float) -> None:
        await self._true.advance(seconds)
