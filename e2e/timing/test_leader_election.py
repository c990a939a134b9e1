"""Two processes and one Lease on the real API server: at no moment do both act.

A witness records every write of the leaders, in the order of the store.
"""

import itertools
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.process import Process
from e2e.cluster.programs import Program
from e2e.cluster.resources import CONFIG_MAPS, LEASES, Resource
from e2e.cluster.timeline import Moment, Timeline
from e2e.fixtures.product_client import config_map
from e2e.timing.election_candidate import LEASE, TIMING, WRITES
from e2e.timing.fake_time import DateOf
from tests.support.repository import ROOT

pytestmark = pytest.mark.serial  # time-outs of leaders are measured

HOUR_S = 3600
StartCandidate: TypeAlias = Callable[..., Process]


@asynccontextmanager
async def election(
    cluster: Cluster, namespace: str, folder: Path
) -> AsyncIterator[tuple[Timeline, StartCandidate]]:
    """Let candidates enter, record what they write, and end them."""
    entered: list[Process] = []

    def enter(identity: str, *options: str, date: DateOf | None = None) -> Process:
        argv = [sys.executable, "-m", "e2e.timing.election_candidate"]
        argv += [str(cluster.kubeconfig), namespace, identity, *options]
        environment = {"PYTHONPATH": str(ROOT), **(date.environment if date else {})}
        process = Process(Program(identity, argv, environment), folder / f"{identity}.log")
        process.start()
        entered.append(process)
        return process

    await cluster.api.create(config_map(namespace, WRITES))
    try:
        async with cluster.timeline(CONFIG_MAPS, LEASES, namespace=namespace) as seen:
            yield seen, enter
    finally:
        for process in entered:
            await process.kill()


def moments_of(seen: Timeline, resource: Resource, name: str) -> list[Moment]:
    """Return every moment of one object, in order."""
    return [
        moment
        for moment in seen.history()
        if moment.key.resource == resource and moment.key.name == name
    ]


def writes_of(seen: Timeline) -> list[tuple[str, float]]:
    """Return who acted, and when the witness saw it."""
    found = moments_of(seen, CONFIG_MAPS, WRITES)
    return [(by, it.at_s) for it in found if (by := it.obj.get("data", {}).get("by"))]


def leadership_spans(seen: Timeline) -> list[str]:
    """Return who acted one after the other; a name that comes back is a leader that came back."""
    return [by for by, _ in itertools.groupby(by for by, _ in writes_of(seen))]


def holders(seen: Timeline) -> list[str]:
    """Return who held the Lease one after the other, without what makes each unique."""
    names = map(_holder_of, moments_of(seen, LEASES, LEASE))
    return [name for name, _ in itertools.groupby(names)]


def _holder_of(moment: Moment) -> str:
    name: str = moment.obj["spec"].get("holderIdentity", "")
    return name.partition("_")[0]


async def acting(seen: Timeline, identity: str, times: int = 5) -> None:
    """Wait until somebody acted so often from now on."""
    before = sum(by == identity for by, _ in writes_of(seen))
    await seen.until(
        lambda _: sum(by == identity for by, _ in writes_of(seen)) >= before + times,
        f"{identity} acts",
    )


@pytest.mark.parametrize(
    "by_itself",
    [
        pytest.param(True, id="before a write"),
        pytest.param(False, id="at any moment", marks=pytest.mark.soak),
    ],
)
async def test_a_frozen_leader_does_not_act_when_it_wakes_up(
    cluster: Cluster, namespace: str, tmp_path: Path, *, by_itself: bool
) -> None:
    """It is stopped for longer than its lease; the other one takes over; then it goes on."""
    async with election(cluster, namespace, tmp_path) as (seen, enter):
        a = enter("a", *(["40"] if by_itself else []))
        await acting(seen, "a")
        b = enter("b")
        if not by_itself:
            await acting(seen, "a", 20)
            a.pause()
        await acting(seen, "b")
        a.resume()
        await acting(seen, "b", 40)
        a.check()
        await b.stop()
        await acting(seen, "a")

    assert leadership_spans(seen) == ["a", "b", "a"]
    last_of_a = max(at_s for by, at_s in writes_of(seen)[: until_writes(seen, "b")] if by == "a")
    first_of_b = next(at_s for by, at_s in writes_of(seen) if by == "b")
    assert first_of_b - last_of_a >= TIMING.lease_s - TIMING.renew_deadline_s - TIMING.write_s


def until_writes(seen: Timeline, identity: str) -> int:
    """Return how many acts there were before the first of somebody."""
    return next(n for n, (by, _) in enumerate(writes_of(seen)) if by == identity)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL], ids=["asked to stop", "killed"]
)
async def test_how_soon_the_next_one_leads(
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    """At once after a leader has given the Lease back, else when its last renewal has run out."""
    async with election(cluster, namespace, tmp_path) as (seen, enter):
        a = enter("a")
        await acting(seen, "a")
        enter("b")
        await acting(seen, "a", 20)
        await (a.stop() if number == signal.SIGTERM else a.kill())
        await acting(seen, "b")

    assert leadership_spans(seen) == ["a", "b"]
    assert holders(seen) == (["a", "", "b"] if number == signal.SIGTERM else ["a", "b"])
    left_s = max(it.at_s for it in moments_of(seen, LEASES, LEASE) if _holder_of(it) != "b")
    first_of_b = next(at_s for by, at_s in writes_of(seen) if by == "b")
    # What two watches tell may arrive in any order, but not by a third of a Lease apart.
    has_run_out = first_of_b - left_s > TIMING.lease_s * 2 / 3
    assert has_run_out == (number == signal.SIGKILL)
    ended = [line for line in a.tail(3) if '"process ends", "code": 0' in line]
    assert len(ended) == (number == signal.SIGTERM)


async def test_dates_that_jump_change_nothing(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The leader's date goes an hour ahead and two back, then the follower's.

    Both are ahead of ours, for before today the API server's certificate is not good.
    """
    leaders, followers = (DateOf(folder(tmp_path, name)) for name in ("leaders", "followers"))
    for date in (leaders, followers):
        date.jump_to(2 * HOUR_S)
    async with election(cluster, namespace, tmp_path) as (seen, enter):
        enter("a", date=leaders)
        await acting(seen, "a")
        enter("b", date=followers)
        for date in (leaders, followers):
            for hours in (3, 1):
                date.jump_to(hours * HOUR_S)
                await acting(seen, "a", int(20 * TIMING.lease_s))  # longer than the lease

    assert (leadership_spans(seen), holders(seen)) == (["a"], ["a"])
    renewed = [it.obj["spec"]["renewTime"] for it in moments_of(seen, LEASES, LEASE)]
    assert renewed != sorted(renewed)  # its date did go back


def folder(parent: Path, name: str) -> Path:
    """Make a folder."""
    made = parent / name
    made.mkdir()
    return made
