"""Carries out what was decided for one unit: holds its slots, binds its pods, lets slots go.

1. What a bind relies on is written before it: slots for pods that come later.
2. Nobody is sent off before what makes room for is promised it, and the slots of those who move
   are held, and nobody unless all can be.
3. The pods of a unit are sent together. One that is refused is forgotten, and the next plan finds
   it waiting in a unit that has begun; nobody else is touched.
4. A bind without an answer is sent again for a few seconds, to the same node: it counts once. Of
   one that still has none only a watch says what became of it: it is waited for.
5. What is refused for good is left alone for a while, longer each time, and keeps its place that
   long: to try again at once would be to ask the same again and again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from structlog.typing import FilteringBoundLogger

from scheduler.shell.claims import Claims
from scheduler.shell.window import Window
from scheduler.state.departures import Departure
from scheduler.state.live import Live
from scheduler.state.orders import UnitOrders
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED
from trainer_kai.api.resources import PODGROUPS, PODS
from trainer_kai.kube.actions import bind
from trainer_kai.kube.client import Client, Patience
from trainer_kai.kube.errors import ApiError, Conflict, NotFound, Throttled, Unavailable
from trainer_kai.kube.request import Write
from trainer_kai.metrics import Metrics

__all__ = ["FIELD_MANAGER", "Carrier", "Departs", "Plans"]

# Has those of some orders go, if these still stand; returns who does not, and if for a while.
Departs: TypeAlias = Callable[
    [UnitOrders, Callable[[], bool]], Awaitable[tuple[tuple[Departure, ...], bool]]
]

FIELD_MANAGER: Final = "trainer-kai-scheduler"

_SEEN_S: Final = 15.0  # until a watch must have told what was done
_GONE_S: Final = 45.0  # until it must have told that pods are going: others delete them
_REST_S: Final = 1.0  # of a pod that was refused, the first time
_LONGEST_REST_S: Final = 60.0
_UNANSWERED_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)  # after a bind without an answer
_THROTTLED_S: Final = 0.2  # where the API server does not say how long
_HELD: Final = Write(field_manager=FIELD_MANAGER)
_PROMISED: Final = Write(field_manager=FIELD_MANAGER, subresource="status")


class Plans(Protocol):
    """Whoever plans."""

    def again(self) -> None:
        """Plan again."""
        ...

    def give_back(self, gpus: int) -> None:
        """Take note that some were not taken after all."""
        ...


@dataclass
class _Line:
    """What is to be done for one unit: one after the other, for each relies on the one before."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    failures: int = 0


class Carrier:
    """One for as long as we lead."""

    def __init__(
        self,
        client: Client,
        live: Live,
        depart: Departs,
        plans: Plans,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client.with_patience(Patience(waits_when_throttled=False))
        self._live = live
        self._claims = Claims(live.cluster)
        self._depart = depart
        self._plans = plans
        self._metrics = metrics
        self._log = log
        self._window = Window(client.clock)
        self._lines: dict[Key, _Line] = {}
        self._rests_s: dict[Key, float] = {}  # of pods that were refused, how long the next one is

    async def carry(self, orders: UnitOrders) -> None:
        """Do it all, after whatever was decided for this unit before; what fails is forgotten."""
        line = self._lines.setdefault(orders.group, _Line())
        line.waiting += 1
        failures = line.failures
        try:
            async with line.turn:
                if line.failures == failures:
                    await self._carry(orders, line)
                elif orders.hold is not None and _only_holds(orders):
                    self._live.keep_again(orders.group, orders.hold)
                else:  # it was decided as if what has failed meanwhile had been done
                    self._forget(orders)
        finally:
            line.waiting -= 1
            if not line.waiting:
                self._lines.pop(orders.group, None)

    async def _carry(self, orders: UnitOrders, line: _Line) -> None:
        if orders.hold is not None and not await self._hold(orders.group, orders.hold):
            line.failures += 1
            self._let_stay(orders, orders.departures)
            pods = [it.pod for it in (*orders.binds, *orders.nominations)]
            if pods:
                self._rest(orders.group, *pods)
            else:
                self._live.keep_again(orders.group, orders.hold)
            return
        async with asyncio.TaskGroup() as group:
            binds = [group.create_task(self._bind(*it)) for it in orders.binds]
            promised = zip(orders.nominations, orders.uids, strict=True)
            promises = {it: group.create_task(self._promise(*it, uid)) for it, uid in promised}
        if orders.departures:
            line.failures += not await self._send_off(
                orders, is_promised=all(task.result() for it, task in promises.items() if it.node)
            )
        if not all(task.result() for task in binds):
            line.failures += 1
            self._live.hold(orders.group, orders.hold)  # whoever was refused still has its slot
        elif orders.let_go is not None:
            await self._hold(orders.group, orders.let_go)  # or else it is let go when it is seen
        self._live.held(orders.group, self._until_s())

    async def _send_off(self, orders: UnitOrders, *, is_promised: bool) -> bool:
        """Have those go who make room, if it is held for whom they make it; say if all do."""
        left, rests = orders.departures, False
        if is_promised and await self._hold_elsewhere(orders.departures):
            left, rests = await self._depart(orders, lambda: self._stands(orders))
        elif is_promised:
            rests = True
        now_s = self._client.clock.monotonic_s()
        for pod in (pod for one in orders.departures if one not in left for pod in one.pods):
            self._live.assumed.done(pod, now_s + _GONE_S)
        for group in (group for one in orders.departures for group, _ in one.holds):
            self._live.held(group, self._until_s())
        self._live.leaving.settle(orders.departures)
        if not rests:
            self._rests_s.pop(orders.group, None)
            self._let_stay(orders, left)
        elif left:  # to ask again at once would be to ask the same
            self._rest(orders.group, *(pod for one in left for pod in one.pods))
            self._live.let_place_go(left)
            self._plans.give_back(sum(one.gpus for one in left))
        self._plans.again()
        return not left

    async def _hold_elsewhere(self, departures: tuple[Departure, ...]) -> bool:
        """Write where those will be who move; not while something else is written of them."""
        holds = [it for one in departures for it in one.holds]
        if any(group in self._lines for group, _ in holds):
            return False
        return all([await self._hold(*it) for it in holds])

    def _stands(self, orders: UnitOrders) -> bool:
        """Say whether those are still there whom something is promised."""
        pods = self._live.cluster.pods
        promised = zip(orders.nominations, orders.uids, strict=True)
        found = [(pods.get(it.pod), uid) for it, uid in promised if it.node]
        return all(
            pod is not None and pod.metadata.uid == uid and not pod.metadata.deletion_timestamp
            for pod, uid in found
        )

    def _let_stay(self, orders: UnitOrders, some: tuple[Departure, ...]) -> None:
        """Take back that some go for a unit."""
        if some:
            self._live.forget_departures(orders, some)
            self._plans.give_back(sum(one.gpus for one in some))

    def _forget(self, orders: UnitOrders) -> None:
        for pod, _ in orders.binds:
            self._live.forget_bind(pod)
        for pod, _ in orders.nominations:
            self._live.forget_promise(pod)
        self._let_stay(orders, orders.departures)
        self._live.forget_hold(orders.group)
        self._plans.again()

    async def _hold(self, group: Key, text: str) -> bool:
        """Write which slots a group holds."""
        known = self._live.cluster.pod_groups.get(group)
        if known is None:
            return False
        annotations = {RESERVED: text or None}
        fields = {"metadata": {"uid": known.metadata.uid, "annotations": annotations}}
        try:
            await self._send(lambda: self._client.merge(PODGROUPS, group, fields, _HELD))
        except ApiError as error:
            self._log.warning("slots not held", group=str(group), error=str(error))
            return False
        self._rests_s.pop(group, None)
        if text:
            self._log.info("slots held", group=str(group), slots=text)
        else:
            self._log.info("slots let go", group=str(group))
        return True

    async def _bind(self, pod: Key, node: str) -> bool:
        known, chosen = self._live.cluster.pods.get(pod), self._live.assumed.bound_as(pod)
        if known is None or chosen is None or known.metadata.uid != chosen.uid:
            self._rests_s.pop(pod, None)
            return False  # it is gone, or another one, and nothing is assumed any more
        try:
            await self._claims.bind(self._client, known, node)
            await self._send_bind(pod, node, chosen.uid)
        except Unavailable:
            self._live.assumed.done(pod, self._until_s())
            return False
        except (NotFound, Conflict) as error:
            self._log.info("bind refused", pod=str(pod), node=node, error=str(error))
            self._metrics.binds.labels("refused").inc()
            if pod in self._rests_s:  # it was refused before: no watch says why
                self._rest(pod)
            else:
                self._rests_s[pod] = _REST_S
                self._live.forget_bind(pod)
                self._plans.again()
            return False
        except ApiError as error:
            self._log.warning("bind refused", pod=str(pod), node=node, error=str(error))
            self._metrics.binds.labels("failed").inc()
            self._rest(pod)
            return False
        self._rests_s.pop(pod, None)
        self._metrics.binds.labels("bound").inc()
        self._log.info("pod bound", pod=str(pod), node=node)
        return True  # it is so for good, however late a watch tells of it

    async def _send_bind(self, pod: Key, node: str, uid: str) -> None:
        """Send a bind until there is an answer, or none for too long."""
        waits_s = iter(_UNANSWERED_S)
        is_repeated = False
        while True:
            try:
                await self._send(lambda: self._bind_as_chosen(pod, node, uid))
            except Conflict:
                if not is_repeated:
                    raise
                # By the one before, or the pod has changed meanwhile: a watch says which.
                self._live.assumed.done(pod, self._until_s())
                return
            except Unavailable as error:
                self._log.warning("bind without answer", pod=str(pod), node=node, error=str(error))
                wait_s = next(waits_s, None)
                if wait_s is None:
                    raise
                is_repeated = True
                await self._client.clock.sleep(wait_s)
            else:
                return

    async def _bind_as_chosen(self, pod: Key, node: str, uid: str) -> None:
        """Bind a pod that says what it said when a node was chosen for it: its queue, its group."""
        chosen = self._live.assumed.bound_as(pod)
        version = chosen.resource_version if chosen else ""
        await bind(self._client, pod, node, uid=uid, version=version)

    async def _send(self, write: Callable[[], Awaitable[object]]) -> None:
        """Send a write when there is room for it, and again when the API server had too much."""
        while True:
            try:
                async with self._window.room():
                    await write()
            except Throttled as error:
                self._window.throttled()
                await self._client.clock.sleep(error.retry_after_s or _THROTTLED_S)
            else:
                return

    async def _promise(self, pod: Key, node: str, uid: str) -> bool:
        known = self._live.cluster.pods.get(pod)
        if known is None or known.metadata.uid != uid:
            return False
        if not self._live.assumed.promises(pod):
            return True  # it is so already
        fields = {
            "metadata": {"uid": known.metadata.uid},
            "status": {"nominatedNodeName": node},
        }
        try:
            await self._send(lambda: self._client.merge(PODS, pod, fields, _PROMISED))
        except (NotFound, Conflict):
            self._live.forget_promise(pod)
            self._plans.again()
            return False
        except ApiError as error:
            self._log.warning("node not promised", pod=str(pod), node=node, error=str(error))
            self._rest(pod)
            return False
        self._live.assumed.done(pod, self._until_s())
        return True

    def _rest(self, refused: Key, *others: Key) -> None:
        """Let all this be as if it were done for a while; then it is forgotten and planned anew."""
        rest_s = self._rests_s.get(refused, _REST_S)
        self._rests_s[refused] = min(2 * rest_s, _LONGEST_REST_S)
        for key in (refused, *others):
            self._live.assumed.done(key, self._client.clock.monotonic_s() + rest_s)

    def _until_s(self) -> float:
        return self._client.clock.monotonic_s() + _SEEN_S


def _only_holds(orders: UnitOrders) -> bool:
    """Say whether nothing but places of lost pods is to be written."""
    return not (orders.binds or orders.nominations or orders.departures)
