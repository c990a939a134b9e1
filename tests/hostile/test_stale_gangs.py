"""Many large PodGroups below their minimum block the event loop only briefly."""

import asyncio
import json
from typing import Any, Final, cast
from unittest.mock import patch

from scheduler.shell.evict.stale_gang_observer import StaleGangController
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from scheduler.state.podgroups.missing_pods import Shortage
from tests.hostile.objects import TENANT, pod, pod_group
from tests.support.clock import VirtualClock
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import STALE_SINCE
from trainer_kai.api.resources import PODGROUPS, PODS

_GROUPS: Final = 20
_SUBGROUPS: Final = 30
_COST_S: Final = 0.02  # of one with 3,000 subgroups, the most that a PodGroup may have


class _Clock(VirtualClock):
    """It runs also while a PodGroup is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.worked_s = 0.0

    def monotonic_s(self) -> float:
        """Return the time that passed asleep and at work."""
        return super().monotonic_s() + self.worked_s


class _Client:
    """All that is asked of it here is the time."""

    def __init__(self) -> None:
        self.clock = _Clock()


def _live() -> ClusterCache:
    """Return groups of which one of their pods runs, each with the note that it is short."""
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
    live, unused, client = _live(), cast("Any", None), _Client()
    controller = StaleGangController(cast("Any", client), live, lambda _: None, unused, unused)
    seen: list[Key] = []
    shortage = live.incomplete.shortage

    def noted(group: Key) -> Shortage | None:
        seen.append(group)
        client.clock.worked_s += _COST_S
        return shortage(group)

    task = asyncio.create_task(controller.run())
    with patch.object(live.incomplete, "shortage", noted):
        most = 0
        while len(set(seen)) < _GROUPS:
            before = len(seen)
            await client.clock.advance(1)
            most = max(most, len(seen) - before)
    task.cancel()
    await asyncio.wait([task])

    assert most == 3  # until 0.05 s are over
    assert len(seen) == _GROUPS
