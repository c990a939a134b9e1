"""Creates and deletes ProvisioningRequests, one for each PodGroup that asks by one.

1. A request is created when its ask is recorded on the PodGroup, so a new leader finds it, and none
   is created while another one of the PodGroup exists.
2. It is kept while pods of the PodGroup run, because these use it up, and deleted when none does,
   when the PodGroup waits for something else, or when it asks anew. With the PodGroup the API
   server deletes all of it.
3. Its pod templates are created before it, and deleted with it.
4. A PodGroup is looked at when what it asks for, its pods, or its requests have changed. That it
   is looked at every few minutes as well is for what was overlooked.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from scheduler.core.model.rejections import ClusterEvent
from scheduler.shell.bind.writes import FIELD_MANAGER
from scheduler.shell.report.asks import NO_ASKS
from scheduler.shell.report.plan_report import PlanReport
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import format_timestamp
from scheduler.state.podgroups.node_asks import NodeAsk, is_same_ask
from scheduler.state.podgroups.provisioning import (
    MOST_POD_SETS,
    OUR_LABELS,
    RequestState,
    owner_podgroup,
    request_name,
    request_objects,
    request_state,
    template_names,
)
from trainer_kai.api.cluster_kinds import ProvisioningRequest
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ASKED_FOR_NODES,
    CONSUMES_CLASS,
    CONSUMES_REQUEST,
)
from trainer_kai.api.pod import TERMINAL_PHASES
from trainer_kai.api.resources import POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import DeleteOptions, ListTarget, Selection, WriteOptions
from trainer_kai.kube.rest.response import AlreadyExists, ApiError, NotFound, is_retryable
from trainer_kai.kube.watch import Delta, DeltaType, Watch, WatchObserver
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings

_CREATE: Final = WriteOptions(field_manager=FIELD_MANAGER)
_AGAIN_S: Final = 2.0  # until a record is written
_RESYNC_S: Final = 600.0
_SELECTION: Final = Selection(labels=",".join("=".join(it) for it in OUR_LABELS.items()))


class _Wish(NamedTuple):
    """What matters of a PodGroup after a plan."""

    pods: tuple[Key, ...]
    since: int
    by_class: str
    is_waiting: bool


class ProvisioningRequests:
    """The requests that exist, and those that should; `run` is the service."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        wake: Callable[[ClusterEvent], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._cache = cache
        self._wake = wake
        self._log = log
        self._is_synced = False
        self._existing: dict[Key, dict[str, ProvisioningRequest]] = {}  # by PodGroup and name
        self._asks: Mapping[Key, NodeAsk] = NO_ASKS
        self._pods: Mapping[Key, tuple[Key, ...]] = {}
        self._waiting: Collection[Key] = ()
        self._wishes: dict[Key, _Wish] = {}  # of PodGroups that ask, or have a request
        self.states: dict[Key, RequestState] = {}  # by PodGroup
        self._queue: WorkQueue[Key] = WorkQueue(
            self._reconcile,
            WorkQueueSettings("provisioning requests", workers=1),
            client.clock,
            log,
        )

    async def run(self) -> None:
        await self._queue.run()

    def watch(self, observer: WatchObserver) -> Watch[ProvisioningRequest]:
        """Return the watch; where the kind is not served it finds none."""
        return Watch(
            self._client,
            ListTarget(PROVISIONING_REQUESTS, selection=_SELECTION),
            observer,
            optional=True,
        )

    def synced(self) -> None:
        self._is_synced = True
        for key in {*self._existing, *self._pods}:
            self._queue.add(key)

    def changed(self, delta: Delta[ProvisioningRequest]) -> None:
        """Take note of a request that came, changed or went."""
        request = delta.object
        if delta.type is DeltaType.DELETED or request is None:
            for group, requests in [*self._existing.items()]:
                if group.namespace == delta.key.namespace and delta.key.name in requests:
                    del requests[delta.key.name]
                    self._note(group)
            return
        owner = owner_podgroup(request)
        if owner is not None:
            group = Key(delta.key.namespace, owner.name)
            self._existing.setdefault(group, {})[delta.key.name] = request
            self._note(group)

    def _note(self, group: Key) -> None:
        requests = self._existing.get(group, {})
        before = self.states.pop(group, None)
        if requests:
            self.states[group] = max(map(request_state, requests.values()))
        else:
            self._existing.pop(group, None)
        if before != self.states.get(group):
            self._wake(ClusterEvent.ANY)
        self._queue.add(group)

    def publish(self, report: PlanReport) -> None:
        """Take what PodGroups ask for after a plan."""
        self._pods, self._asks = report.requested, report.asks
        self._waiting = report.podgroups.keys()
        for group in self.states.keys() - self._existing.keys() - self._pods.keys():
            del self.states[group]  # of one that could not be created
        before = self._wishes
        self._wishes = {it: self._wish(it) for it in self._pods.keys() | self._existing.keys()}
        for group in before.keys() | self._wishes.keys():
            if before.get(group) != self._wishes.get(group):
                self._queue.add(group)

    def _wish(self, group: Key) -> _Wish:
        ask, is_waiting = self._asks.get(group), group in self._waiting
        since, by_class = (0, "") if ask is None else (ask.since, ask.by_class)
        return _Wish(self._pods.get(group, ()), since, by_class, is_waiting)

    def podgroup_changed(self, group: Key) -> None:
        """Take note that pods of a PodGroup came, changed or went."""
        if group in self._existing:
            self._queue.add(group)

    def bind_annotations(self, group: Key) -> Mapping[str, str]:
        """Return what tells the autoscaler that a pod uses the request of its PodGroup up."""
        state = self.states.get(group)
        if state is None or state.failure:
            return {}
        request = next(iter(self._existing[group].values()))
        return {
            CONSUMES_REQUEST: request.metadata.name,
            CONSUMES_CLASS: request.spec.provisioning_class_name,
        }

    async def _reconcile(self, key: Key) -> Requeue | None:
        group = self._cache.cluster.pod_groups.get(key)
        if group is None or not self._is_synced:
            return None  # the API server deletes them with their owner
        ask = self._asks.get(key) if self._pods.get(key) else None
        existing = [*self._existing.get(key, {}).values()]
        outdated = [it for it in existing if not self._is_needed(it, group, ask)]
        for request in outdated:
            await self._delete(request)
        if existing:
            return Requeue.after(_RESYNC_S)
        if ask is None:
            return None
        record = group.metadata.annotations.get(ASKED_FOR_NODES)
        if not is_same_ask(record, ask):
            return Requeue.after(_AGAIN_S)
        await self._create(group, ask, self._pods[key])
        return None

    def _is_needed(
        self, request: ProvisioningRequest, group: PodGroup, ask: NodeAsk | None
    ) -> bool:
        owner, state = owner_podgroup(request), request_state(request)
        if owner is None or owner.uid != group.metadata.uid:
            return False
        if ask is not None:
            is_same_class = request.spec.provisioning_class_name == ask.by_class
            return is_same_class and state.since == format_timestamp(ask.since)
        return group.metadata.key not in self._waiting and self._has_pods(group.metadata.key)

    def _has_pods(self, group: Key) -> bool:
        """Say whether pods run, or are about to: it may take a while until a bind is seen."""
        pods = (self._cache.cluster.pods[it] for it in self._cache.members.pods_of(group))
        return any(it.status.phase not in TERMINAL_PHASES for it in pods)

    async def _create(self, group: PodGroup, ask: NodeAsk, pods: tuple[Key, ...]) -> None:
        known = [it for key in pods if (it := self._cache.cluster.pods.get(key)) is not None]
        name = request_name(group.metadata.name, ask.attempts)
        since = format_timestamp(ask.since)
        objects = request_objects(group, name, ask.by_class, since, known)
        if objects is None:
            self._fail(group, since, f"its pods are of more than {MOST_POD_SETS} kinds")
            return
        templates, request = objects
        bodies: list[tuple[Resource[Any], dict[str, Any]]]
        bodies = [*((POD_TEMPLATES, it) for it in templates), (PROVISIONING_REQUESTS, request)]
        for resource, body in bodies:
            failure = await self._create_one(resource, group, body)
            if failure:
                self._fail(group, since, failure)
                return
        self._log.info("provisioning requested", podgroup=str(group.metadata.key), request=name)

    def _fail(self, group: PodGroup, since: str, failure: str) -> None:
        """Have the ask given up: it would wait for ever for what does not exist."""
        key = group.metadata.key
        self._log.warning("provisioning not requested", podgroup=str(key), error=failure)
        self.states[key] = RequestState(since, failure=f"it was not created: {failure}")
        self._wake(ClusterEvent.ANY)

    async def _create_one(
        self, resource: Resource[Any], group: PodGroup, body: dict[str, Any]
    ) -> str:
        """Create an object, unless an attempt that was not finished has; return why it cannot."""
        try:
            await self._client.create(resource, group.metadata.namespace, body, _CREATE)
        except AlreadyExists:
            return ""
        except ApiError as error:
            if is_retryable(error):
                raise  # the queue tries again
            return str(error)
        return ""

    async def _delete(self, request: ProvisioningRequest) -> None:
        meta = request.metadata
        if meta.deletion_timestamp:
            return
        names: list[tuple[Resource[Any], str, str]]
        names = [(PROVISIONING_REQUESTS, meta.name, meta.uid)]
        names += [(POD_TEMPLATES, it, "") for it in template_names(request)]
        for resource, name, uid in names:
            try:
                await self._client.delete(resource, Key(meta.namespace, name), DeleteOptions(uid))
            except NotFound:
                continue
        self._log.info("provisioning request deleted", request=str(meta.key))
