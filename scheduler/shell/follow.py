"""Watches of all that a plan is made from: a change is told to the state, and wakes the cycle."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from scheduler.shell.cycle import Cycle
from scheduler.shell.tables import tables
from scheduler.state.live import Live
from scheduler.state.news import Topics
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import EVENTS, PODGROUPS, PODS, TRAINJOBS
from trainer_kai.health import Health
from trainer_kai.kube.client import Client
from trainer_kai.kube.known import Change, What
from trainer_kai.kube.observed import Observed
from trainer_kai.kube.request import Selection, Target
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.watch import Watch
from trainer_kai.policy.unmade import FIELDS

__all__ = ["Follower"]

T = TypeVar("T", bound=Object)


class _Kind(NamedTuple):
    """A kind that is followed, and who is told of its changes."""

    resource: Resource[Any]
    tell: Callable[[Key, Any], Topics]


class Follower:
    """Starts the watches; ready means that each has told all there is."""

    def __init__(self, live: Live, cycle: Cycle) -> None:
        self._live = live
        self._cycle = cycle
        self._missing: set[str] = set()
        self._synced = asyncio.Event()

    async def synced(self) -> None:
        """Wait until everything is known."""
        await self._synced.wait()

    def start(self, run: Runner, client: Client, seen: Observed, health: Health) -> None:
        """Follow all kinds from now on."""
        kinds = self._kinds()
        self._missing = {kind.resource.plural for kind in kinds}
        for kind in kinds:
            name = kind.resource.plural
            watch: Watch[Any] = Watch(client, Target(kind.resource), seen)
            health.needs(f"{name} followed", watch.missing)
            run.start(f"watch {name}", self._following(watch, kind))
        # These only say more of who waits, so nothing waits for them.
        kind = _Kind(EVENTS, self._live.refusals.tell)
        refusals: Watch[Any] = Watch(
            client, Target(EVENTS, selection=Selection(fields=FIELDS)), seen
        )
        run.start(f"watch {EVENTS.plural}", self._following(refusals, kind))

    def _kinds(self) -> list[_Kind]:
        cluster = self._live.cluster
        followed = (*tables(cluster), (TRAINJOBS, cluster.trainjobs))
        kinds = [_Kind(resource, self._into(table)) for resource, table in followed]
        return [*kinds, _Kind(PODGROUPS, self._live.group), _Kind(PODS, self._live.pod)]

    def _into(self, table: dict[Any, Any]) -> Callable[[Key, Any], Topics]:
        return lambda key, seen: self._live.put(table, key, seen)

    def _following(self, watch: Watch[Any], kind: _Kind) -> Callable[[], Coroutine[Any, Any, None]]:
        def change(it: Change[Any]) -> None:
            is_gone = it.what is What.DELETED or it.object is None
            self._cycle.wake(kind.tell(it.key, None if is_gone else it.object))

        def synced() -> None:
            self._missing.discard(kind.resource.plural)
            if not self._missing:
                self._synced.set()

        return lambda: watch.run(change, synced)
