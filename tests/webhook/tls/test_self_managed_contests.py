"""Another client overwrites what we write: for how long we restore it."""

from datetime import datetime

from structlog.testing import capture_logs

from tests.support.clock import VirtualClock
from tests.webhook.fake_api_server import FakeApiServer, Replica, encoded


async def test_of_two_installations_one_gives_way(clock: VirtualClock) -> None:
    """Each has a Secret of its own, and both call the same Service: that ends, and is told."""
    first, other = FakeApiServer(), FakeApiServer()
    first.configure("")
    other.configurations = first.configurations
    other._next_version = first._next_version  # type: ignore[method-assign]
    replicas = [await Replica(it, clock).start() for it in (first, other)]
    with capture_logs() as logs:
        await clock.advance(600)
    writes = len(first.writes()) + len(other.writes())
    await clock.advance(2400)
    later = len(first.writes()) + len(other.writes())
    await clock.advance(2 * 3600)

    assert later == writes < 20
    assert len(first.writes()) + len(other.writes()) < 4 * writes  # it is tried once an hour
    assert sorted(len(it.unready) for it in replicas) == [0, 1]
    errors = [it["error"] for it in logs if it["event"] == "certificate not renewed"]
    assert any("another client overwrites the caBundle of Mutating" in it for it in errors)


async def test_an_occasional_overwrite_is_no_contest(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """An old manifest is applied once a week; each time our authority is restored."""
    api_server.configure("")
    replica = await Replica(api_server, clock).start()
    for _ in range(6):
        await clock.advance(4000)
        api_server.publish("eA==")
        await clock.advance(60)

        assert (api_server.bundles(), replica.unready) == (
            {encoded(api_server.content.authorities)},
            {},
        )


async def test_an_overwrite_that_stopped_is_no_contest(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """At once where the other authority is gone, and within an hour where it is there."""
    api_server.configure("")
    replica = await Replica(api_server, clock).start()
    for _ in range(6):
        api_server.publish("eA==")
        await clock.advance(60)
    contested = api_server.bundles(), [*replica.unready]
    api_server.publish("")
    await clock.advance(60)
    evicted = api_server.bundles()
    api_server.publish("eA==")
    await clock.advance(4000)

    assert contested == ({"eA=="}, ["trusted"])
    assert evicted == api_server.bundles() == {encoded(api_server.content.authorities)}
    assert replica.unready == {}


async def test_two_clocks_do_not_write_for_ever(
    api_server: FakeApiServer, clock: VirtualClock
) -> None:
    """For a replica in another year all certificates have expired: it reports that and stops."""
    ahead = _Ahead(clock)
    replicas = [await Replica(api_server, it).start() for it in (clock, ahead)]
    with capture_logs() as logs:
        await clock.advance(600)
    before = len(api_server.writes())
    await clock.advance(2400)

    assert len(api_server.writes()) == before < 30
    assert any("a wrong clock" in it.get("error", "") for it in logs)
    assert replicas[0].certificate.tls.pair is not None


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
