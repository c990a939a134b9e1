"""Many large PodGroups below their minimum block the event loop only briefly."""

import asyncio
import json
import time
from typing import Any, Final, cast

from scheduler.shell.evict.stale_gangs import StaleGangController
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from scheduler.state.podgroups.missing_pods import Shortage
from tests.hostile.objects import TENANT, pod, pod_group
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import STALE_SINCE
from trainer_kai.api.resources import PODGROUPS, PODS
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.garbage_collection import without_collection

_GROUPS: Final = 20
_SUBGROUPS: Final = 3_000  # the most that a PodGroup may have
_MAX_S: Final = 0.15  # of CPU in which others get no turn; it was 0.4 s


class _Client:
    """All that is asked of it here is the time."""

    clock = SystemClock()


class _Watched(ClusterCache):
    """It says of which groups it was asked what they lack."""

    def __init__(self) -> None:
        super().__init__(lambda: StateOptions(now=0))
        self.seen: set[Key] = set()

    def shortage(self, group: Key) -> Shortage | None:
        self.seen.add(group)
        return super().shortage(group)


def _live() -> _Watched:
    """Return groups of which one of 3,000 pods runs, each with the note that it is short."""
    live = _Watched()
    live.start_leading()
    subgroups = [{"name": f"s-replica-{number}", "minMember": 1} for number in range(_SUBGROUPS)]
    for number in range(_GROUPS):
        report = pod_group(TENANT, f"g{number}")
        report["spec"] = {"queue": TENANT, "subGroups": subgroups}
        report["metadata"]["annotations"] = {STALE_SINCE: "2026-01-05T08:00:00Z"}
        group = decode(PODGROUPS.struct, json.dumps(report).encode())
        live.update_group(group.metadata.key, group)
        runs = pod(TENANT, f"p{number}", 0, f"g{number}", node="n0")
        runs["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "s-replica-0"
        found = decode(PODS.struct, json.dumps(runs).encode())
        live.update_pod(found.metadata.key, found)
    live.start_leading()
    return live


async def test_others_get_their_turn() -> None:
    """They are looked at in turns, a few at a time."""
    live, unused = _live(), cast("Any", None)
    controller = StaleGangController(cast("Any", _Client()), live, unused, unused, 60.0, unused)
    task = asyncio.create_task(controller.run())
    longest_s, until_s = 0.0, time.monotonic() + 2.5
    with without_collection():  # the scheduler does not go through what the tests here have made
        while time.monotonic() < until_s:
            began_s = time.thread_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.thread_time() - began_s)
    task.cancel()
    await asyncio.wait([task])

    assert longest_s < _MAX_S
    assert len(live.seen) > 1
