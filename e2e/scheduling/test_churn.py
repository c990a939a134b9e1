"""Two teams that want more than there is, all the time: everybody is done in the end."""

import asyncio
from random import Random
from typing import Final

import pytest

from e2e.fixtures.installation import Installation
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    complete,
    failures,
    make_queue,
    on_nodes,
    submit,
    suspensions,
)
from e2e.size import SEED, size

_JOBS: Final = size(12, 50)
_MOST: Final = 10  # times that one makes room while others come; twice, where nothing is slow
_ALL_S: Final = 400.0
_BORROWED_FOR: Final = "10s"  # long beside the second in which a job of the other team reclaims


@pytest.mark.sized
@pytest.mark.timeout(600)  # which counts the start of the chain as well
async def test_trainjobs_of_two_teams_are_all_done(
    two_teams_installation: Installation, two_teams_namespace: str
) -> None:
    """Nobody is failed, lost or sent off without end, and nothing of ours is left."""
    cluster, lot = two_teams_installation.cluster, Random(SEED)  # noqa: S311 - the same each time
    for name in ("east", "west"):
        await make_queue(cluster, name, 4, two_teams_namespace)
    names = [f"job-{i:02}" for i in range(_JOBS)]
    borrowers = names[:2]
    async with cluster.timeline(*WATCHED, namespace=two_teams_namespace) as seen:
        for name in borrowers:  # They fill the cluster: west's first job has to reclaim.
            await submit(cluster, two_teams_namespace, Job(name, "east", 4, _BORROWED_FOR))
        await seen.until(
            lambda state: all(on_nodes(name, 4)(state) for name in borrowers), "east has all", 60
        )
        for i, name in enumerate(names[2:]):
            team = ("west", "east")[i // 5 % 2]  # in bursts, so that one borrows from the other
            run_for = f"{lot.randint(1, 4)}s"
            await submit(
                cluster, two_teams_namespace, Job(name, team, lot.choice((1, 2, 3, 4)), run_for)
            )
            await asyncio.sleep(lot.random())
        await seen.until(complete(*names), "all are Complete", _ALL_S)
        history = seen.history()
        counted = [failures(seen.state, name) for name in names]

    times = {name: suspensions(history, name) for name in names}
    assert counted == [(0, 0)] * _JOBS
    assert sum(times.values()), "nobody made room: the test shows nothing"
    assert max(times.values()) <= _MOST, times
