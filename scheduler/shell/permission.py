"""Asks whether namespaces may use the queues that their pods name, and remembers the answers.

Any user of a namespace can write its labels, PodGroups and pods, so what is asked is whether all
service accounts of the namespace may: verb `use` on the queue, in that namespace.

1. It is asked as soon as a snapshot holds a unit of a namespace and queue that nothing is known of,
   and again every 60 s, or every 10 s where somebody waits because of a refusal. No plan waits for
   an answer: whoever needs one waits for the next plan.
2. While it cannot be asked the last answer holds.
3. Under `enforce` the answers are told to the state, and who may not is never started. Under `warn`
   nobody waits: who starts all the same is told so once.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal

from structlog.typing import FilteringBoundLogger

from scheduler.shell.cycle import Carries
from scheduler.shell.evict import trainjob_of
from scheduler.state.live import Live
from scheduler.state.news import Topics
from scheduler.state.orders import UnitOrders
from scheduler.state.permits import Permit, accounts_of, may_not, remedy
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import QUEUE, RUN_AI
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import PODGROUPS, PODS, QUEUES
from trainer_kai.kube.actions import Question, is_allowed
from trainer_kai.kube.client import Client, Patience
from trainer_kai.kube.errors import ApiError, Unauthorized
from trainer_kai.kube.events import Recorder, Regarding
from trainer_kai.kube.queue import QueueSettings, Requeue, WorkQueue

__all__ = ["Carrying", "Permissions", "Switch"]

Switch = Literal["enforce", "warn"]

_GOOD_S: Final = 60.0  # of an answer
_REFUSED_S: Final = 10.0  # of a refusal for which somebody waits
_PATIENCE: Final = Patience(timeout_s=5.0, total_s=5.0)
_SETTINGS: Final = QueueSettings("permissions", workers=8, retry_first_s=0.5, retry_cap_s=15.0)


class Carrying:
    """A carrier, of whose work somebody hears."""

    def __init__(self, carrier: Carries, hear: Callable[[UnitOrders], None]) -> None:
        self._carrier = carrier
        self._hear = hear

    async def carry(self, orders: UnitOrders) -> None:
        """Do what was decided for one unit."""
        self._hear(orders)
        await self._carrier.carry(orders)


class Permissions:
    """One for as long as we lead; what the state was told before stays until it is asked anew."""

    def __init__(
        self,
        client: Client,
        live: Live,
        wake: Callable[[Topics], None],
        recorder: Recorder,
        log: FilteringBoundLogger,
        switch: Switch,
    ) -> None:
        self._client = client.with_patience(_PATIENCE)
        self._live = live
        self._wake = wake
        self._recorder = recorder
        self._log = log
        self._enforces = switch == "enforce"
        self._used: AbstractSet[Key] = frozenset()
        self._asked: set[Key] = set()  # or about to be
        self._known: dict[Key, bool] = {}
        self._started: dict[Key, dict[Key, Regarding]] = {}  # by pair that is not known: by group
        self._told: dict[Key, str] = {}  # groups that were warned, and their uids
        self._is_failing = False
        self._queue: WorkQueue[Key] = WorkQueue(self._ask, _SETTINGS, client.clock, log)

    async def run(self) -> None:
        """Ask, as long as we lead; begin with whatever was known before."""
        self.needed(self._live.cluster.permits.keys())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._forget_the_gone())

    def needed(self, pairs: AbstractSet[Key]) -> None:
        """Take note of which namespaces and queues units are; it must not wait."""
        self._used = pairs
        for pair in pairs - self._asked:
            self._asked.add(pair)
            self._queue.add(pair)

    def starts(self, orders: UnitOrders) -> None:
        """Take note of what is bound: if it may not use its queue, it is told, once."""
        if self._enforces or not orders.binds:
            return
        found = self._about(orders)
        if found is None or self._told.get(orders.group) == found[1].uid:
            return
        pair, regarding = found
        if self._known.get(pair) is False:
            self._warn(pair, orders.group, regarding)
        elif pair in self._asked and pair not in self._known:
            self._started.setdefault(pair, {})[orders.group] = regarding

    def _about(self, orders: UnitOrders) -> tuple[Key, Regarding] | None:
        cluster, namespace = self._live.cluster, orders.group.namespace
        group = cluster.pod_groups.get(orders.group)
        if group is not None:
            return Key(namespace, group.spec.queue), _regarding(PODGROUPS, group.metadata)
        pod = cluster.pods.get(orders.binds[0].pod)
        if pod is None:
            return None
        queue = pod.metadata.labels.get(QUEUE) or self._live.default_queue
        return Key(namespace, queue), _regarding(PODS, pod.metadata)

    def _warn(self, pair: Key, group: Key, regarding: Regarding) -> None:
        known = self._live.cluster.pod_groups.get(group)
        if known is not None:  # a pod on its own starts but once
            self._told[group] = regarding.uid
        job = trainjob_of(self._live, known) if known else None
        message = (
            f"{may_not(pair)}, and it is started all the same, for queue_permission is warn. "
            f"It is allowed when {remedy(pair)}"
        )
        for one in filter(None, (regarding, job)):
            self._recorder.post(one, "ForbiddenQueue", message, "Warning")

    async def _ask(self, pair: Key) -> Requeue | None:
        if pair not in self._used:
            self._asked.discard(pair)
            self._known.pop(pair, None)
            self._started.pop(pair, None)
            self._tell(pair, None)
            return None
        question = Question(
            "use", RUN_AI, QUEUES.plural, pair.name, pair.namespace, groups=(accounts_of(pair),)
        )
        try:
            answer = await is_allowed(self._client, question)
        except Unauthorized:
            raise
        except ApiError as error:
            self._failed(pair, error)
            return Requeue.SOON
        self._is_failing = False
        self._answered(pair, is_granted=answer.allowed)
        is_waited_for = self._enforces and not answer.allowed
        return Requeue.after(_REFUSED_S if is_waited_for else _GOOD_S)

    def _failed(self, pair: Key, error: ApiError) -> None:
        if not self._is_failing:
            self._log.warning("permission not asked", of=str(pair), error=str(error))
        self._is_failing = True
        if self._live.cluster.permits.get(pair) is None:
            self._tell(pair, Permit.UNASKED)

    def _answered(self, pair: Key, *, is_granted: bool) -> None:
        self._known[pair] = is_granted
        for group, regarding in self._started.pop(pair, {}).items():
            if not is_granted:
                self._warn(pair, group, regarding)
        self._tell(pair, Permit.GRANTED if is_granted else Permit.REFUSED)

    def _tell(self, pair: Key, permit: Permit | None) -> None:
        if self._enforces:
            self._wake(self._live.permit(pair, permit))

    async def _forget_the_gone(self) -> None:
        while True:
            await self._client.clock.sleep(_GOOD_S)
            for key in self._told.keys() - self._live.cluster.pod_groups.keys():
                del self._told[key]
            for pair, started in self._started.items():
                left = {group: it for group, it in started.items() if self._is_there(it)}
                self._started[pair] = left

    def _is_there(self, one: Regarding) -> bool:
        cluster, key = self._live.cluster, Key(one.namespace, one.name)
        return key in (cluster.pods if one.kind == PODS.kind else cluster.pod_groups)


def _regarding(resource: Resource[Any], meta: Meta) -> Regarding:
    return Regarding(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)
