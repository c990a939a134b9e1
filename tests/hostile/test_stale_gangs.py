"""Many large PodGroups below their minimum block the event loop only briefly."""

import asyncio
import json
import time
from typing import Any, Final, cast
from unittest.mock import patch

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


def _live() -> ClusterCache:
    """Return groups of which one of 3,000 pods runs, each with the note that it is short."""
    live = ClusterCache(lambda: StateOptions(now=0))
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
    controller = StaleGangController(cast("Any", _Client()), live, lambda _: None, unused, unused)
    seen: set[Key] = set()
    shortage = live.incomplete.shortage

    def noted(group: Key) -> Shortage | None:
        seen.add(group)
        return shortage(group)

    task = asyncio.create_task(controller.run())
    longest_s, until_s = 0.0, time.monotonic() + 2.5
    # The scheduler does not go through what the tests here have made.
    with without_collection(), patch.object(live.incomplete, "shortage", noted):
        while time.monotonic() < until_s:
            began_s = time.thread_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.thread_time() - began_s)
    task.cancel()
    await asyncio.wait([task])

    assert longest_s < _MAX_S
    assert len(seen) > 1
