"""Evicts a workload without failing it: suspends it, and resumes it when its pods have terminated.

Its pods are never deleted one by one: each deletion counts as a failure of its Job, and a few of
them fail the workload for good. So the object that its users create, a TrainJob for example, is
suspended as they could do it. The record of that is on the PodGroups, which users may not write,
and the next leader continues from there. The suspended object has a copy of it, which costs other
users nothing, forged or not. If the API server refuses the copy, the object is suspended without
it, and the record says so.

    runs ──records──▶ recorded ──evict──▶ suspended ──pods terminated, Jobs recreated──▶ resumed
     ▲                   │                                                                 │
     └──not suspended────┘                                       records are removed ◀─────┘

1. Suspension and copy are applied under a field manager of their own, and resuming is applying
   nothing: the fields that only we own are removed, and those of another manager are kept.
2. The intent of a user counts when it can be seen: another manager owns the suspension too, the
   manifest last applied asks for it, the copy was removed, or the object was resumed. A client
   chooses its manager's name: a false one costs at most the user of this object, never others.
3. A workload that does not release its nodes is backed off, and an Event says so: it is not
   suspended in time after its owner, pods do not terminate (of a workload that a finalizer keeps,
   or of a Job that another controller runs), or it was resumed. GPUs of pods that did not terminate
   are returned to the rate limit of evictions.
4. A workload that cannot be suspended is never evicted in another way. One that another client
   resumes within a minute, as GitOps does, is evicted by its pods from then on, until another
   process leads, unless Jobs create its pods: their deletion could fail it.
5. An object with a copy and no record is resumed if our manager owns its suspension: an older
   version has suspended it, or its PodGroups were recreated. It never counts as an eviction in
   flight.
6. Before a workload is resumed, its Jobs of which only some ranks have succeeded are recreated
   (`JobRecreator`).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from scheduler.core.model.rejections import ClusterEvent
from scheduler.shell.event_objects import suspendable_object
from scheduler.shell.evict.suspension_owners import (
    EVICTION_MANAGER,
    RawSuspendable,
    has_other_manager,
    is_suspended_by_us,
    kept_annotations,
    last_applied_suspends,
    other_managers,
    suspended_fields,
    user_wants_suspension,
)
from scheduler.shell.evict.write_eviction_records import EvictionRecords, JobRecreator
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import PlannedEviction, SuspendableId
from scheduler.state.podgroups.attributes import has_eviction_copy, suspend_refusal
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.text import listed_names
from trainer_kai.kube.client import Client
from trainer_kai.kube.events import EventRecorder, EventType
from trainer_kai.kube.rest.request import WriteOptions, get
from trainer_kai.kube.rest.response import Conflict, Forbidden, Invalid, NotFound
from trainer_kai.kube.workqueue import Requeue, WorkQueue, WorkQueueSettings
from trainer_kai.policy.podgroups.eviction_record import (
    EvictionRecord,
    is_evicted,
    read_eviction_record,
)
from trainer_kai.policy.workloads.kinds import OWNER_OF_KIND
from trainer_kai.policy.workloads.workload import ObjectKey, Suspendable, Workload
from trainer_kai.service.metrics import Metrics

_APPLY: Final = WriteOptions(field_manager=EVICTION_MANAGER, force=True)
_DRY_RUN: Final = WriteOptions(field_manager=EVICTION_MANAGER, force=True, dry_run=True)
_FOLLOW_TIMEOUT_S: Final = 30.0  # until a workload must follow its owner
_REVERTED_S: Final = 60.0  # a suspension that ends earlier is not tried again
_STUCK_S: Final = 120.0  # after which pods that do not terminate are not waited for
_UNSUSPENDED_RECORD_S: Final = 10.0  # after which a record without a suspension is removed
_POLL_S: Final = 1.0
_BACKOFF_S: Final = 60.0  # of what could not be suspended, the first time
_TIMER_TOLERANCE_S: Final = 1e-3  # a work queue may call a little early
_MAX_BACKOFF_S: Final = 3600.0


class _Backoff(NamedTuple):
    """For how long no plan chooses a workload as a victim."""

    uid: str
    length_s: float
    until_s: float


class _Tracked(NamedTuple):
    uid: str
    since_s: float  # when the record was seen, or the object suspended
    eviction: PlannedEviction | None = None  # for which it was suspended, if by this process
    was_suspended: bool = False  # seen suspended, with a record
    is_given_up: bool = False  # it does not release its nodes
    resumed_s: float = math.inf  # its records stay until the watch shows that it is resumed
    is_resumed_by_us: bool = False  # to be posted when its workload is resumed
    is_delay_posted: bool = False  # of its workload
    is_reverted: bool = False  # its pods are evicted as soon as its records are removed


class PlanWaker(Protocol):
    def wake(self, event: ClusterEvent) -> None: ...

    def refund(self, gpus: int) -> None:
        """Give GPUs back to the rate limit that were not evicted after all."""
        ...


class Suspender:
    """Suspends workloads, and resumes them as long as their PodGroups have our record."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        recorder: EventRecorder,
        waker: PlanWaker,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        """*waker* learns when a workload may be chosen again, and which GPUs were not evicted."""
        self._client = client
        self._waker = waker
        self._cache = cache
        self._suspended = cache.suspended_workloads
        self._recorder = recorder
        self._log = log
        self._records = EvictionRecords(client, cache, log)
        self._job_recreator = JobRecreator(client, cache, log)
        self._tracked: dict[ObjectKey, _Tracked] = {}
        self._backoffs: dict[ObjectKey, _Backoff] = {}  # of what could not be suspended
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            self._reconcile,
            WorkQueueSettings("suspended", workers=4),
            client.clock,
            log,
            metrics=metrics.work_queue("suspended"),
        )

    async def run(self) -> None:
        """Reconcile all that we suspended, also what was before this process led."""
        for key in self._suspended.recorded():
            self._queue.add(key)
        await self._queue.run()

    def record_changed(self, key: ObjectKey) -> None:
        """Take note of what has our record on its PodGroups, or a copy of it.

        That it is suspended is noted now: its user may resume it before it is reconciled.
        """
        found = self._suspended.find(key)
        if found is not None and found.is_suspended and self._recorded_podgroups(found):
            self._tracked[key] = self._tracked_state(found)[0]._replace(was_suspended=True)
        self._queue.add(key)

    async def dry_run_failure(self, suspended: SuspendableId) -> str | None:
        """Return why this very object cannot be suspended, by a dry run; None if it can."""
        found = self._current(suspended)
        if found is None:
            return _deleted_text(suspended)
        if found.is_suspended:
            return self._follow_failure(found)
        return suspend_refusal(found, kueue=self._cache.kueue) or await self._suspend(
            found, "", is_dry=True
        )

    async def suspend(self, eviction: PlannedEviction, suspended: SuspendableId) -> str | None:
        found = self._current(suspended)
        if found is None:
            return _deleted_text(suspended)
        key = found.key
        if found.is_suspended:
            self._queue.add(key)
            return self._follow_failure(found)
        self._tracked[key] = _Tracked(suspended.uid, self._client.clock.monotonic_s())
        self._queue.add_after(key, _POLL_S)  # also without an answer
        reason = await self._suspend(found, eviction.reason)
        if reason is None:
            now_s = self._client.clock.monotonic_s()
            self._tracked[key] = self._tracked_state(found)[0]._replace(
                since_s=now_s, eviction=eviction
            )
            pods = len(eviction.pods)
            until = f"its {pods} evicted pods have" if pods > 1 else "its evicted pod has"
            message = f"{eviction.reason}. Suspended until {until} terminated, then resumed"
            self._post(suspended, "Evicted", message)
        return reason

    def _follow_failure(self, found: Suspendable) -> str | None:
        """Return the failure of an owner that is suspended, while its workload is not."""
        workload = self._suspended.workload_below(found.key)
        if workload is None or workload.is_suspended:
            return None
        return f"{_not_following_text(found, workload)}: {_controller_check(found)}"

    def _current(self, suspended: SuspendableId) -> Suspendable | None:
        found = self._suspended.find(suspended.key)
        return found if found is not None and found.metadata.uid == suspended.uid else None

    async def _suspend(self, found: Suspendable, why: str, *, is_dry: bool = False) -> str | None:
        """Write records and suspend, without a copy if that is refused; return why it fails."""
        groups = self._suspended.groups_of(found)
        at = self._client.clock.now().isoformat(timespec="seconds")
        # A suspension that the manifest asked for before is no later intent of the user.
        before = last_applied_suspends(found.metadata.annotations, found.suspend_path)
        reason: str | None = None
        for has_copy in (True, False):
            record = EvictionRecord(why, at, has_copy, before)
            record_failure = await self._records.write(found, groups, record, is_dry=is_dry)
            if record_failure is not None:
                return record_failure
            reason = await self._apply(found, record, _DRY_RUN if is_dry else _APPLY)
            if reason is None:
                break
        return reason

    async def _apply(
        self, found: Suspendable, record: EvictionRecord, write: WriteOptions
    ) -> str | None:
        meta: dict[str, Any] = {"uid": found.metadata.uid}
        if record.is_copied:
            fields = {
                "by": EVICTION_MANAGER,
                "why": record.reason,
                "at": record.at,
                "applied": record.was_suspend_requested,
            }
            meta["annotations"] = {EVICTED_BY: json.dumps(fields)}
        applied = {"metadata": meta, **suspended_fields(found.suspend_path)}
        try:
            await self._client.apply(found.resource, found.metadata.key, applied, write)
        except (Invalid, Forbidden, Conflict, NotFound) as error:
            return f"the {found.key.kind} cannot be suspended: {error}"
        return None

    def back_off(self, suspended: SuspendableId, reason: str) -> None:
        """Have no plan choose what cannot be suspended; post one Event about it."""
        if self._start_backoff(suspended, reason):
            message = f"Not evicted: {reason}. {_retry_text(_BACKOFF_S)}"
            self._post(suspended, "NotEvicted", message, "Warning")

    def _start_backoff(self, suspended: SuspendableId, reason: str) -> bool:
        """Have no plan choose it for a while, longer each time; say if it is the first."""
        key, uid = suspended
        before = self._backoffs.get(key)
        is_first = before is None or before.uid != uid
        length_s = _BACKOFF_S
        if before is not None and not is_first:
            length_s = min(2 * before.length_s, _MAX_BACKOFF_S)
        now_s = self._client.clock.monotonic_s()
        self._backoffs[key] = _Backoff(uid, length_s, now_s + length_s)
        # Without its details: a preemptor names the same reason once for all victims.
        self._waker.wake(self._suspended.set_refusal(key, reason.partition(":")[0]))
        self._queue.add_after(key, length_s)
        return is_first

    async def _reconcile(self, key: ObjectKey) -> Requeue | None:
        found = self._suspended.find(key)
        self._reconcile_backoff(key, found)
        groups = self._recorded_podgroups(found) if found else []
        if found is None or not (groups or has_eviction_copy(found)):
            self._tracked.pop(key, None)
            return None
        tracked, waited_s = self._tracked_state(found)
        if tracked.resumed_s < math.inf:
            return await self._remove_records(found, groups)
        if not found.is_suspended:
            return await self._reconcile_running(found, tracked, waited_s)
        self._tracked[key] = tracked._replace(was_suspended=bool(groups))
        is_due, reason = self._resume_readiness(found, waited_s)
        if not is_due:
            return Requeue.after(_POLL_S)
        if not groups:
            return await self._resume(found)
        if reason:
            return await self._give_up(found, reason)
        return await self._recreate_jobs(found, waited_s) or await self._resume(found)

    def _resume_readiness(self, found: Suspendable, waited_s: float) -> tuple[bool, str]:
        workload = self._suspended.workload_below(found.key)
        if workload is not None and not workload.is_suspended:
            reason = f"{_not_following_text(found, workload)} after {_FOLLOW_TIMEOUT_S:g} s"
            return waited_s >= _FOLLOW_TIMEOUT_S, reason
        if not self._cache.members.placed_pods_of_all(found.key):
            return True, ""
        pods = self._suspended.pods_not_terminating(found.key)
        return waited_s >= _STUCK_S, _stuck_pods_message(pods)

    async def _recreate_jobs(self, found: Suspendable, waited_s: float) -> Requeue | None:
        try:
            is_whole = await self._job_recreator.recreate(found)
        except (Forbidden, Invalid) as error:
            message = f"Ranks that have succeeded may not run again, no Job is recreated: {error}"
            self._post(_id(found), "RanksLeftOut", message, "Warning")
            return None  # the workload is resumed without them
        return None if is_whole or waited_s >= _STUCK_S else Requeue.after(_POLL_S)

    def _recorded_podgroups(self, found: Suspendable) -> list[PodGroup]:
        return [it for it in self._suspended.groups_of(found) if is_evicted(found, it)]

    def _tracked_state(self, found: Suspendable) -> tuple[_Tracked, float]:
        """Return the tracked state, and for how long it is tracked."""
        key, uid, now_s = found.key, found.metadata.uid, self._client.clock.monotonic_s()
        tracked = self._tracked.get(key)
        if tracked is None or tracked.uid != uid:
            tracked = self._tracked[key] = _Tracked(uid, now_s)
        return tracked, now_s - tracked.since_s

    async def _reconcile_running(
        self, found: Suspendable, tracked: _Tracked, waited_s: float
    ) -> Requeue | None:
        """Reconcile what runs with records: it was resumed, or never suspended."""
        if tracked.was_suspended and self._is_reverted(found, waited_s):
            return await self._evict_pods_next(found, tracked, waited_s)
        if tracked.was_suspended:
            return await self._give_up(
                found, f"the {found.key.kind} was resumed during its eviction"
            )
        if waited_s < _UNSUSPENDED_RECORD_S:
            return Requeue.after(_POLL_S)  # it is about to be suspended
        return await self._resume(found)

    def _is_reverted(self, found: Suspendable, waited_s: float) -> bool:
        workload = self._suspended.workload_of(found)
        has_jobs = workload is None or workload.kind.has_jobs
        return waited_s < _REVERTED_S and not has_jobs

    async def _evict_pods_next(
        self, found: Suspendable, tracked: _Tracked, waited_s: float
    ) -> Requeue | None:
        if not tracked.is_given_up:
            self._tracked[found.key] = tracked._replace(is_given_up=True, is_reverted=True)
            self._suspended.set_refusal(found.key, "its suspension was reverted")
            by = await self._suspension_managers(found)
            field = ".".join(found.suspend_path)
            message = (
                f"{by} reverted {field} {waited_s:.0f} s after the {found.key.kind} was suspended "
                "for its eviction. It is not suspended again: an eviction deletes its pods instead"
            )
            self._post(_id(found), "SuspensionReverted", message, "Warning")
        return await self._resume(found)

    async def _suspension_managers(self, found: Suspendable) -> str:
        try:
            read = get(found.resource, found.metadata.key)
            raw = await self._client.call(RawSuspendable, read)
        except NotFound:
            return "Another client"
        names = other_managers(raw.metadata, found.suspend_path)
        return f"Field manager {listed_names(names, 3)}" if names else "Another client"

    async def _give_up(self, found: Suspendable, reason: str) -> Requeue | None:
        tracked, _ = self._tracked_state(found)
        if not tracked.is_given_up:
            self._tracked[found.key] = tracked._replace(is_given_up=True)
            self._start_backoff(_id(found), reason)
            retry = _retry_text(self._backoffs[found.key].length_s)
            self._post(_id(found), "EvictionUndone", f"Not evicted: {reason}. {retry}")
        return await self._resume(found)

    def _reconcile_backoff(self, key: ObjectKey, found: Suspendable | None) -> None:
        """Let plans choose it again after its backoff; forget the backoff after as long."""
        backoff = self._backoffs.get(key)
        if backoff is None:
            return
        left_s = backoff.until_s - self._client.clock.monotonic_s()
        if left_s > _TIMER_TOLERANCE_S:
            self._queue.add_after(key, left_s)
            return
        self._waker.wake(self._suspended.set_refusal(key, None))
        known_s = left_s + 2 * backoff.length_s
        if found is None or known_s <= _TIMER_TOLERANCE_S:
            del self._backoffs[key]
        else:
            self._queue.add_after(key, known_s)

    async def _resume(self, found: Suspendable) -> Requeue | None:
        """Give up the fields that we own; a suspension that the user wants is kept."""
        key, groups = found.key, self._recorded_podgroups(found)
        resource, name, path = found.resource, found.metadata.key, found.suspend_path
        records = [it for it in (read_eviction_record(found, group) for group in groups) if it]
        try:
            raw = await self._client.call(RawSuspendable, get(resource, name))
            has_copy = bool(raw.metadata.annotations.get(EVICTED_BY))
            is_uncopied = any(not it.is_copied for it in records)
            is_ours = is_uncopied or (has_copy and (bool(records) or is_suspended_by_us(raw, path)))
            stays_suspended = raw.is_suspended(path) and (
                not is_ours or user_wants_suspension(raw.metadata, records, path)
            )
            if is_ours:
                meta = {"uid": found.metadata.uid, **kept_annotations(raw.metadata)}
                fields: dict[str, Any] = {"metadata": meta}
                if stays_suspended and not has_other_manager(raw.metadata, path):
                    fields |= suspended_fields(path)
                elif found.needs_false and raw.is_suspended(path) and not stays_suspended:
                    fields |= suspended_fields(path, value=False)
                await self._client.apply(resource, name, fields, _APPLY)
        except NotFound:
            self._tracked.pop(key, None)
            return None
        except (Invalid, Conflict) as error:
            self._log.warning("workload not resumed", kind=key.kind, key=str(key), error=str(error))
            return Requeue.SOON
        if is_ours:
            self._log.info(
                "suspension removed", kind=key.kind, key=str(key), stays_suspended=stays_suspended
            )
        tracked, _ = self._tracked_state(found)
        since_s = -math.inf if stays_suspended else self._client.clock.monotonic_s()
        self._tracked[key] = tracked._replace(
            resumed_s=since_s, is_resumed_by_us=is_ours and not stays_suspended
        )
        return await self._remove_records(found, groups)

    async def _remove_records(
        self, found: Suspendable, groups: Iterable[PodGroup]
    ) -> Requeue | None:
        """Remove the records when the watch shows that it is resumed, or is kept suspended.

        Before that its suspension would look like its user's, and the places that are reserved for
        its return would be released. Pods of one that was given up may still begin to terminate.
        """
        tracked, _ = self._tracked_state(found)
        passed_s = self._client.clock.monotonic_s() - tracked.resumed_s
        wait_s = _UNSUSPENDED_RECORD_S if found.is_suspended else tracked.is_given_up * _POLL_S
        if passed_s < wait_s:
            return Requeue.after(_POLL_S)
        if delayed := self._follow_delay(found, tracked, passed_s):
            return delayed
        unused = {} if found.is_suspended else self._unused_gpus(tracked)
        if not await self._records.remove(groups, unused):
            return Requeue.SOON
        self._waker.refund(sum(unused.values()))
        if tracked.is_resumed_by_us and not found.is_suspended:
            kind = found.key.kind
            message = f"Resumed after its eviction: the {kind} waits for free resources"
            self._post(_id(found), "Resumed", message)
        if not tracked.is_given_up:
            self._backoffs.pop(found.key, None)
        if tracked.is_reverted:
            self._suspended.set_reverted(found)
            self._waker.wake(self._suspended.set_refusal(found.key, None))
        self._tracked.pop(found.key, None)
        return None

    def _follow_delay(
        self, found: Suspendable, tracked: _Tracked, passed_s: float
    ) -> Requeue | None:
        """Wait for the workload of a resumed owner: its records say why it has no pods meanwhile.

        They have no effect on plans. Post once that it takes long.
        """
        workload = self._suspended.workload_below(found.key)
        if found.is_suspended or workload is None or not workload.is_suspended:
            return None
        if passed_s < _FOLLOW_TIMEOUT_S:
            return Requeue.after(_POLL_S)
        if not tracked.is_delay_posted:
            self._tracked[found.key] = tracked._replace(is_delay_posted=True)
            kind, below = found.key.kind, workload.key.kind
            message = (
                f"The {kind} is resumed after its eviction, and its {below} is still suspended "
                f"after {_FOLLOW_TIMEOUT_S:g} s: {_controller_check(found)}, "
                f"and that no other controller manages the {below}"
            )
            self._post(_id(found), "NotResumed", message, "Warning")
        return Requeue.after(_FOLLOW_TIMEOUT_S)

    def _unused_gpus(self, tracked: _Tracked) -> Mapping[Key, int]:
        """Return the GPUs of evicted pods that did not terminate, by their recording PodGroup."""
        eviction = tracked.eviction
        if eviction is None or not eviction.pods or not tracked.is_given_up:
            return {}
        pods = self._cache.cluster.pods
        found = [(pods.get(it), uid) for it, uid in zip(eviction.pods, eviction.uids, strict=True)]
        running = [it for it, uid in found if it is not None and _is_still_running(it, uid)]
        return {eviction.groups[0]: eviction.gpus * len(running) // len(eviction.pods)}

    def _post(
        self, suspended: SuspendableId, reason: str, message: str, kind: EventType = "Normal"
    ) -> None:
        self._recorder.post(suspendable_object(suspended), reason, message, kind)


def _id(found: Suspendable) -> SuspendableId:
    return SuspendableId(found.key, found.metadata.uid)


def _deleted_text(suspended: SuspendableId) -> str:
    return f"the {suspended.key.kind} no longer exists"


def _not_following_text(found: Suspendable, workload: Workload) -> str:
    return f"the {found.key.kind} is suspended, but its {workload.key.kind} is not"


def _controller_check(found: Suspendable) -> str:
    return f"check that {OWNER_OF_KIND[found.key.kind].controller} is running"


def _is_still_running(pod: Pod, uid: str) -> bool:
    meta = pod.metadata
    return (
        meta.uid == uid and not meta.deletion_timestamp and pod.status.phase not in TERMINAL_PHASES
    )


def _stuck_pods_message(pods: Sequence[Key]) -> str:
    """Return which pods do not terminate that should; empty if all are terminating."""
    if not pods:
        return ""
    more = f" and {len(pods) - 1} more" if pods[1:] else ""
    return f"pods were not terminating after {_STUCK_S:g} s: pod {pods[0].name}{more}"


def _retry_text(backoff_s: float) -> str:
    return f"The scheduler does not evict it again for {backoff_s:g} s"
