"""Our hand on a Lease."""

import asyncio

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.leases import TIMING, Host, LeaseServer, Network
from trainer_kai.kube.claim import LeaseClient
from trainer_kai.kube.errors import Unavailable
from trainer_kai.kube.lease import LeaseRecord

NOW = "2026-01-01T00:00:00.000000Z"

# what was found -> what is written by "me" on new year, with a lease of 15 s
ENTRIES: list[Case[LeaseRecord | None, LeaseRecord]] = [
    Case("there was none", None, LeaseRecord("me", 15, NOW, NOW, 0)),
    Case(
        "nobody had it",
        LeaseRecord("", 1, "x", "y", 4, "9"),
        LeaseRecord("me", 15, NOW, NOW, 5),
    ),
    Case(
        "somebody had it",
        LeaseRecord("you", 60, "x", "y", 4, "9"),
        LeaseRecord("me", 15, NOW, NOW, 5),
    ),
    Case(
        "it was ours",
        LeaseRecord("me", 60, "x", "y", 4, "9"),
        LeaseRecord("me", 15, "x", NOW, 4),
    ),
]


@pytest.mark.parametrize("case", ENTRIES, ids=ids)
def test_entry(case: Case[LeaseRecord | None, LeaseRecord]) -> None:
    """Taking it counts and has a time of its own; going on keeps both."""
    host = Host(LeaseServer(), VirtualClock())

    assert LeaseClient(host, "me", TIMING, host).next_record(case.given) == case.want


async def test_nobody_waits_longer_than_was_said() -> None:
    """The request is given up; that it was carried out is found out by reading."""
    clock, server = VirtualClock(), LeaseServer()
    host = Host(server, clock)
    lease_client = LeaseClient(host, "me", TIMING, host)
    host.network = Network(request_delay_s=1, answer_delay_s=9)
    writing = asyncio.create_task(lease_client.write(None, lease_client.next_record(None), 5))

    await clock.advance(4.9)
    early = writing.done()
    await clock.advance(0.1)

    with pytest.raises(Unavailable, match="no answer within 5 s"):
        await writing
    assert not early
    assert server.record is not None


async def test_a_write_was_sent_before_it_was_answered() -> None:
    """It is the sending that counts."""
    clock, server = VirtualClock(), LeaseServer()
    host = Host(server, clock)
    lease_client = LeaseClient(host, "me", TIMING, host)
    host.network = Network(request_delay_s=1, answer_delay_s=2)
    await clock.advance(10)
    writing = asyncio.create_task(lease_client.write(None, lease_client.next_record(None), 5))
    await clock.advance(5)

    written = await writing

    assert written.sent_s == 10
    assert written.record == server.record


async def test_a_release_leaves_nobody() -> None:
    """The next one may take it at once, and sees that somebody had it."""
    clock, server = VirtualClock(), LeaseServer()
    host = Host(server, clock)
    lease_client = LeaseClient(host, "me", TIMING, host)
    written = await lease_client.write(None, lease_client.next_record(None), 5)

    await lease_client.release(written.record)

    assert server.record == LeaseRecord("", 1, NOW, "2026-01-01T00:00:00.000001Z", 0, "2")
