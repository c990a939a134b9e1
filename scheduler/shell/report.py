"""Says what is so, where people look: conditions, events, status. Level by level, once per change.

1. A group that waits has one scheduling condition, as KAI writes it, with our verdict beside it. It
   goes when nothing of the group waits any more.
2. A pod is marked Unschedulable only where another node would help: autoscalers act on it.
3. What is said must have been so for a moment, and numbers alone are said anew only now and then:
   a verdict that changes is news, a count that does is not.
4. Nobody waits for any of this, and a failure is tried again until it is no longer true.
"""

import zlib
from typing import Any, Final, Literal, NamedTuple

from structlog.typing import FilteringBoundLogger

from scheduler.core.model import Verdict
from scheduler.shell.carry import FIELD_MANAGER
from scheduler.shell.evict import trainjob_of
from scheduler.shell.gauges import Gauges
from scheduler.shell.verdicts import Said, Told
from scheduler.state.live import Live
from trainer_kai.api.meta import Key
from trainer_kai.api.names import POD_GROUP
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup, SchedulingCondition
from trainer_kai.api.queue import QueueStatus
from trainer_kai.api.resources import PODGROUPS, PODS, QUEUES
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import Conflict, Invalid, NotFound
from trainer_kai.kube.events import Recorder, Regarding
from trainer_kai.kube.queue import QueueSettings, Requeue, WorkQueue
from trainer_kai.kube.request import Write
from trainer_kai.metrics import Metrics
from trainer_kai.policy.demand import spell

__all__ = ["PAUSED", "STATUS", "Reporter", "numbers_pause_s", "post", "spelt"]

PAUSED: Final = "SchedulerPaused"  # a condition that `scheduler.shell.pause` writes
STATUS: Final = Write(field_manager=FIELD_MANAGER, subresource="status")
_MARK: Final = Write(field_manager="trainer-kai-unschedulable", subresource="status", force=True)
_MISSING: Final = Verdict.PODS_MISSING.title
_TYPE: Final = "UnschedulableOnNodePool"
_POOL: Final = "default"
_SOON_S: Final = 0.3  # a verdict that stands for so long is one
_MISSING_S: Final = 3.0  # pods are missing from every group for a moment, while they are made
_MISSING_MOST_S: Final = 15.0  # even if more and more come
_TICK_S: Final = 1e-3  # a shorter time is none
_USE_S: Final = 1.0  # what is used is summed up now and then
_QUEUE_S: Final = 3.0  # and of a queue whose use changes all the time
_NUMBERS_S: Final = 3.0  # and so are numbers in sentences,
_NUMBERS_PER_S: Final = 50  # at most so many in all,
_NUMBERS_MOST_S: Final = 60.0  # unless they would be too old
_EVENT_S: Final = 15.0  # events stay, so of them there are fewer
_WORKERS: Final = 8

_What = Literal["group", "pod", "queue"]


class _Subject(NamedTuple):
    what: _What
    key: Key


class Reporter:
    """What was said last, and what is to be said now."""

    def __init__(
        self,
        client: Client,
        live: Live,
        recorder: Recorder,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._live = live
        self._recorder = recorder
        self._log = log
        self._told = Told({}, {})
        self._gauges = Gauges(metrics)
        self._marked: dict[Key, set[Key]] = {}  # by group: its pods
        self._mark_of: dict[Key, Key] = {}  # pod → group
        self._said_s: dict[Key, float] = {}  # when a group was told last
        self._posted_s: dict[Key, float] = {}  # and by an event
        self._waited: set[Key] = set()  # whom we told that they wait, and not yet that they start
        self._groups_waiting = 0
        self._queue_said_s: dict[str, float] = {}
        self._queue_uids: dict[str, str] = {}
        self._since_s: dict[Key, tuple[float, float]] = {}  # pods are missing; as many as now are
        self._has_begun = False
        self._queue: WorkQueue[_Subject] = WorkQueue(
            self._reconcile,
            QueueSettings("reports", workers=_WORKERS),
            client.clock,
            log,
            metrics=metrics.queue("reports"),
        )

    async def run(self) -> None:
        """Say it, as long as we lead; begin with whatever was said before us."""
        await self._queue.run()

    def told(self, told: Told) -> None:
        """Take note of what a plan says."""
        before, self._told = self._told, told
        if not self._has_begun:
            self._begin()
        self._gauges.show(told)
        self._groups_waiting = sum(it in self._live.cluster.pod_groups for it in told.units)
        for group in before.units.keys() | told.units.keys():
            if before.units.get(group) != told.units.get(group):
                self._queue.add_after(_Subject("group", group), _SOON_S)
                self._note_missing(group, told.units.get(group))
        for name, use in told.queues.items():
            known, is_new = before.queues.get(name), self._is_new(name)
            if known is None or is_new or known[:3] != use[:3]:
                self._queue.add_after(_Subject("queue", Key("", name)), self._queue_s(name))

    def _is_new(self, name: str) -> bool:
        """Say whether a queue is another one than when it was told last, and says nothing yet."""
        queue = self._live.cluster.queues.get(name)
        uid = queue.metadata.uid if queue else ""
        before, self._queue_uids[name] = self._queue_uids.get(name), uid
        return before != uid

    def _queue_s(self, name: str) -> float:
        """Return how soon the status of a queue is written: in a crowd it changes all the time."""
        since_s = self._client.clock.monotonic_s() - self._queue_said_s.get(name, -_QUEUE_S)
        return max(_USE_S, _QUEUE_S - since_s)

    def changed(self, group: Key) -> None:
        """Take note that pods of a group come, go or find their place."""
        self._queue.add_after(_Subject("group", group), _USE_S)

    async def _reconcile(self, subject: _Subject) -> Requeue | None:
        try:
            match subject.what:
                case "group":
                    return await self._of_group(subject.key)
                case "pod":
                    await self._of_pod(subject.key)
                case "queue":
                    await self._of_queue(subject.key)
        except (NotFound, Conflict):
            return None  # it is gone or another one, and there will be news of that
        except Invalid as error:
            self._log.warning("not said", of=str(subject.key), error=str(error))
        return None

    def _note_missing(self, group: Key, said: Said | None) -> None:
        if said is not None and said.title == _MISSING:
            now_s = self._client.clock.monotonic_s()
            first_s, _ = self._since_s.get(group, (now_s, now_s))
            self._since_s[group] = first_s, now_s  # some more have come
        else:
            self._since_s.pop(group, None)

    async def _of_group(self, key: Key) -> Requeue | None:
        said = self._told.units.get(key)
        self._mark(key, said)
        group = self._live.cluster.pod_groups.get(key)
        if group is None:
            self._said_s.pop(key, None)
            self._posted_s.pop(key, None)
            self._waited.discard(key)
            return None
        rest_s = self._rest_s(key)
        conditions = None if rest_s else self._conditions(group, said)
        use = self._use(group)
        parts = {"schedulingConditions": conditions, "resourcesStatus": use}
        fields = {name: part for name, part in parts.items() if part is not None}
        if fields:
            body = {"metadata": {"uid": group.metadata.uid}, "status": fields}
            await self._client.merge(PODGROUPS, key, body, STATUS)
        if conditions and said is not None:
            self._said_s[key] = self._client.clock.monotonic_s()
            self._waited.add(key)
            self._tell(group, said)
        elif said is None or said.has_begun:
            self._tell_start(group)
        if rest_s:
            return Requeue.after(rest_s)
        if conditions is not None or not _is_older(group, said):
            return None
        return Requeue.after(self._numbers_s(key))

    def _rest_s(self, group: Key) -> float:
        """Return for how long it is not said yet that pods of a group are missing."""
        if group not in self._since_s:
            return 0.0
        first_s, last_s = self._since_s[group]
        until_s = min(last_s + _MISSING_S, first_s + _MISSING_MOST_S)
        rest_s = until_s - self._client.clock.monotonic_s()
        return rest_s if rest_s > _TICK_S else 0.0

    def _numbers_s(self, group: Key) -> float:
        """Return how long until numbers alone may be said anew to a group."""
        now_s = self._client.clock.monotonic_s()
        said_s = self._said_s.setdefault(group, now_s)
        rest_s = said_s + numbers_pause_s(group, self._groups_waiting) - now_s
        return rest_s if rest_s > _TICK_S else 0.0

    def _conditions(self, group: PodGroup, said: Said | None) -> list[dict[str, Any]] | None:
        """Return the conditions that a group should have; None if it has them."""
        has = group.status.scheduling_conditions
        if said is None or said.has_begun:
            return [] if has else None
        kept = [spelt(it) for it in has if not _is_replaced(it)]
        ours = has[-1] if has else None
        if ours is None or _is_news(ours, said):
            self._posted_s.pop(group.metadata.key, None)
            number = max((_number(it.transition_id) for it in has), default=0) + 1
            since = self._client.clock.now().isoformat(timespec="seconds")
            return [*kept, self._condition(said, str(number), since)]
        if ours.message == said.sentence or self._numbers_s(group.metadata.key):
            return None
        return [*kept, self._condition(said, ours.transition_id, ours.last_transition_time)]

    def _condition(self, said: Said, number: str, since: str | None) -> dict[str, Any]:
        return {
            "type": _TYPE,
            "nodePool": _POOL,
            "status": "True",
            "reason": "Unschedulable",
            "message": said.sentence,
            "reasons": [
                {"reason": reason, "message": message}
                for reason, message in (
                    (said.kai_reason, said.kai_message),
                    (said.title, said.sentence),
                )
                if reason
            ],
            "transitionID": number,
            "lastTransitionTime": since,
        }

    def _use(self, group: PodGroup) -> dict[str, Any] | None:
        """Return what the status should say is used and asked for; None if it says so."""
        allocated, requested = self._live.use_of(group.metadata.key)
        has = group.status.resources_status
        now = {"allocated": spell(allocated), "requested": spell(requested)}
        if (now["allocated"], now["requested"]) == (dict(has.allocated), dict(has.requested)):
            return None
        gone = dict.fromkeys({*has.allocated, *has.requested})
        return {what: {**gone, **amounts} for what, amounts in now.items()}

    def _tell(self, group: PodGroup, said: Said) -> None:
        """Tell by an event why it waits; a new number alone only now and then."""
        now_s, key = self._client.clock.monotonic_s(), group.metadata.key
        if now_s - self._posted_s.get(key, -_EVENT_S) >= _EVENT_S:
            self._posted_s[key] = now_s
            self._post(group, "Unschedulable", "Waiting", f"{said.title}: {said.sentence}")

    def _tell_start(self, group: PodGroup) -> None:
        """Tell who was told that it waits that it starts, as soon as it has nodes."""
        key = group.metadata.key
        if key in self._waited and self._live.members.placed(key):
            self._waited.discard(key)
            self._post(group, "Scheduled", "Starting", "there is room now, and it starts")

    def _post(self, group: PodGroup, reason: str, of_job: str, message: str) -> None:
        post(self._live, self._recorder, group, (reason, of_job), message)

    def _begin(self) -> None:
        """Look at whatever was said before we led, now that it is known what is so."""
        self._has_begun = True
        for key in self._live.cluster.pod_groups:
            self._queue.add_after(_Subject("group", key), _USE_S)
        for key, pod in self._live.cluster.pods.items():
            group = pod.metadata.annotations.get(POD_GROUP)
            if group and not pod.spec.node_name and _is_marked(pod):
                self._mark_of[key] = Key(key.namespace, group)
                self._marked.setdefault(self._mark_of[key], set()).add(key)

    def _mark(self, group: Key, said: Said | None) -> None:
        """Have the pods of a group marked, or no longer."""
        known = self._live.cluster.pod_groups.get(group)
        may = known is None or known.spec.mark_unschedulable
        wanted = set(said.pods) if said is not None and may else set()
        before = self._marked.pop(group, set())
        if wanted:
            self._marked[group] = wanted
        for pod in wanted - before:
            self._mark_of[pod] = group
            self._queue.add(_Subject("pod", pod))
        for pod in before - wanted:
            self._mark_of.pop(pod, None)
            self._queue.add(_Subject("pod", pod))

    async def _of_pod(self, key: Key) -> None:
        pod = self._live.cluster.pods.get(key)
        if pod is None or pod.spec.node_name:
            return
        group = self._mark_of.get(key)
        said = self._told.units.get(group) if group else None
        status: dict[str, Any] = {}
        if said is not None:
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": f"{said.title}: {said.sentence}",
                    "lastTransitionTime": self._client.clock.now().isoformat(timespec="seconds"),
                }
            ]
        fields = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._client.apply(PODS, key, fields, _MARK)

    async def _of_queue(self, key: Key) -> None:
        queue, use = self._live.cluster.queues.get(key.name), self._told.queues.get(key.name)
        if queue is None or use is None:
            self._queue_said_s.pop(key.name, None)
            self._queue_uids.pop(key.name, None)
            return
        children = sorted(
            name
            for name, other in self._live.cluster.queues.items()
            if other.spec.parent_queue == key.name
        )
        has = queue.status
        if list(has.child_queues) == children and _uses(has) == use[:3]:
            return
        status = {
            "childQueues": children,
            "allocated": use.allocated,
            "allocatedNonPreemptible": use.allocated_non_preemptible,
            "requested": use.requested,
        }
        body = {"metadata": {"uid": queue.metadata.uid}, "status": status}
        self._queue_said_s[key.name] = self._client.clock.monotonic_s()
        await self._client.merge(QUEUES, key, body, STATUS)


def numbers_pause_s(group: Key, waiting: int) -> float:
    """Return how long numbers stand as they were said to a group, where so many wait.

    For some longer than for others: those that were told together are not told so again.
    """
    own = 1 + zlib.crc32(str(group).encode()) / 2**32
    return max(_NUMBERS_S, min(waiting / _NUMBERS_PER_S, _NUMBERS_MOST_S) * own)


def post(
    live: Live, recorder: Recorder, group: PodGroup, reasons: tuple[str, str], message: str
) -> None:
    """Post an Event about a PodGroup, and one about its TrainJob; each has its reason."""
    meta = group.metadata
    regarding = Regarding(
        PODGROUPS.api_version, PODGROUPS.kind, meta.namespace, meta.name, meta.uid
    )
    recorder.post(regarding, reasons[0], message)
    job = trainjob_of(live, group)
    if job is not None:
        recorder.post(job, reasons[1], message)


def _is_replaced(condition: SchedulingCondition) -> bool:
    """Say whether a condition goes when a verdict is written: an older one, or that of a pause."""
    return condition.type == PAUSED or (condition.type, condition.node_pool) == (_TYPE, _POOL)


def _uses(status: QueueStatus) -> tuple[object, ...]:
    return dict(status.allocated), dict(status.allocated_non_preemptible), dict(status.requested)


def _is_news(ours: SchedulingCondition, said: Said) -> bool:
    """Say whether a condition says something else by now than what is so."""
    titles = {one.reason for one in ours.reasons}
    return ours.type != _TYPE or ours.status != "True" or said.title not in titles


def _is_older(group: PodGroup, said: Said | None) -> bool:
    """Say whether a group is told numbers that were true some time ago."""
    conditions = group.status.scheduling_conditions
    if said is None or said.has_begun or not conditions:
        return False
    return conditions[-1].message != said.sentence


def _is_marked(pod: Pod) -> bool:
    return any(it.type == "PodScheduled" and it.status == "False" for it in pod.status.conditions)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def spelt(condition: SchedulingCondition) -> dict[str, Any]:
    """Return a condition as it is written."""
    return {
        "type": condition.type,
        "nodePool": condition.node_pool,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "reasons": [{"reason": it.reason, "message": it.message} for it in condition.reasons],
        "transitionID": condition.transition_id,
        "lastTransitionTime": condition.last_transition_time,
    }
