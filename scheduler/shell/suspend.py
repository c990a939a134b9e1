"""Takes a TrainJob off its nodes without ending it: suspended for a moment, and resumed.

Its pods are never deleted one by one: each deletion counts as a failure of its Job, and a few of
them end the TrainJob for good. So it is suspended as its user could do it, and the record of that
is on the TrainJob itself: whoever leads next goes on from there.

    runs ──evict──▶ suspended, with our record ──pods are gone──▶ resumed, without it: it waits

1. Suspension and record are applied under a field manager of their own, and resuming is applying
   nothing: what we owned goes, and what somebody else wants too stays.
2. A user's wish counts when it can be seen: somebody else owns the suspension too, the manifest
   last applied asks for it, our record was taken away, or it was told to run.
3. A JobSet that does not follow in time is let alone again, and that is said.
4. Who cannot be suspended is never evicted in another way.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from scheduler.state.departures import Owner
from scheduler.state.live import Live
from scheduler.state.news import Topics
from scheduler.state.stays import refusal
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY, LAST_APPLIED
from trainer_kai.api.resources import TRAINJOBS
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import Conflict, Forbidden, Invalid, NotFound
from trainer_kai.kube.events import Recorder, Regarding
from trainer_kai.kube.queue import QueueSettings, Requeue, WorkQueue
from trainer_kai.kube.request import Write, get
from trainer_kai.metrics import Metrics

__all__ = ["Suspender"]

_MANAGER: Final = "trainer-kai-eviction"
_OURS: Final = Write(field_manager=_MANAGER, force=True)
_TRIED: Final = Write(field_manager=_MANAGER, force=True, dry_run=True)
_FOLLOWS_S: Final = 30.0  # until the JobSet must have been suspended
_STUCK_S: Final = 120.0  # after which pods that do not go are not waited for
_LOOK_S: Final = 1.0
_REST_S: Final = 60.0  # of one that could not be suspended, the first time
_EARLY_S: Final = 1e-3  # a queue may call a little before the time that it was asked for
_LONGEST_REST_S: Final = 3600.0
_GONE: Final = "it does not exist any more"


class _Managed(msgspec.Struct, rename="camel"):
    manager: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")


class _Owned(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] = {}
    managed_fields: list[_Managed] = []


class _Spec(msgspec.Struct, frozen=True):
    suspend: bool = False


class _Raw(msgspec.Struct):
    metadata: _Owned
    spec: _Spec = _Spec()


class _Rest(NamedTuple):
    """For how long nobody chooses a TrainJob."""

    uid: str
    length_s: float
    until_s: float


class Suspender:
    """Evicts TrainJobs, and sees to those that carry our record."""

    def __init__(
        self,
        client: Client,
        live: Live,
        recorder: Recorder,
        wake: Callable[[Topics], None],
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        """Take *wake* for whoever is told whom it helps that somebody may be chosen again."""
        self._client = client
        self._wake = wake
        self._live = live
        self._recorder = recorder
        self._log = log
        self._since_s: dict[Key, float] = {}  # when a suspension was first seen
        self._rests: dict[Key, _Rest] = {}  # of those that could not be suspended
        self._queue: WorkQueue[Key] = WorkQueue(
            self._reconcile,
            QueueSettings("suspended", workers=4),
            client.clock,
            log,
            metrics=metrics.queue("suspended"),
        )

    async def run(self) -> None:
        """See to whatever is suspended by us, also before we led."""
        for key, job in self._live.cluster.trainjobs.items():
            if EVICTED_BY in job.metadata.annotations:
                self._queue.add(key)
        await self._queue.run()

    def noticed(self, key: Key) -> None:
        """Take note of a TrainJob with our record: somebody has to see to it."""
        self._queue.add(key)

    async def refusal_of(self, whom: Owner) -> str | None:
        """Return why this very TrainJob cannot be suspended, or None; it is tried dry."""
        job = self._known(whom)
        if job is None:
            return _GONE
        if job.spec.suspend:
            return None
        return refusal(job) or await self._apply(job, "", _TRIED)

    async def suspend(self, whom: Owner, why: str) -> str | None:
        """Suspend this very TrainJob; return why that is not possible, or None."""
        job = self._known(whom)
        if job is None:
            return _GONE
        key = job.metadata.key
        if job.spec.suspend:
            self._queue.add(key)
            return None
        self._queue.add_after(key, _LOOK_S)  # also if no answer comes
        reason = await self._apply(job, why, _OURS)
        if reason is None:
            self._since_s[key] = self._client.clock.monotonic_s()
            self._rests.pop(key, None)
            self._say(job, "Evicted", f"Suspended for a moment: {why}")
        return reason

    def _known(self, whom: Owner) -> TrainJob | None:
        job = self._live.cluster.trainjobs.get(whom.key)
        return job if job is not None and job.metadata.uid == whom.uid else None

    async def _apply(self, job: TrainJob, why: str, write: Write) -> str | None:
        now = self._client.clock.now().isoformat(timespec="seconds")
        before = _asks_for_it(job.metadata.annotations)  # what it said then is no wish of later
        record = json.dumps({"by": _MANAGER, "why": why, "at": now, "applied": before})
        metadata = {"uid": job.metadata.uid, "annotations": {EVICTED_BY: record}}
        fields = {"metadata": metadata, "spec": {"suspend": True}}
        try:
            await self._client.apply(TRAINJOBS, job.metadata.key, fields, write)
        except (Invalid, Forbidden, Conflict, NotFound) as error:
            return f"it cannot be suspended: {error}"
        return None

    def let_alone(self, whom: Owner, reason: str) -> None:
        """Let nobody choose a TrainJob for a while: longer each time that it cannot be."""
        before = self._rests.get(whom.key)
        length_s = _REST_S
        if before is not None and before.uid == whom.uid:
            length_s = min(2 * before.length_s, _LONGEST_REST_S)
        now_s = self._client.clock.monotonic_s()
        self._rests[whom.key] = _Rest(whom.uid, length_s, now_s + length_s)
        self._wake(self._live.refuse(whom.key, reason))
        self._queue.add_after(whom.key, length_s)

    async def _reconcile(self, key: Key) -> Requeue | None:
        job = self._live.cluster.trainjobs.get(key)
        self._look_at_rest(key, job)
        if job is None:
            self._since_s.pop(key, None)
            return None
        since_s = self._since_s.setdefault(key, self._client.clock.monotonic_s())
        waited_s = self._client.clock.monotonic_s() - since_s
        if EVICTED_BY not in job.metadata.annotations:
            if waited_s < _FOLLOWS_S:
                return Requeue.after(_LOOK_S)  # not seen yet, or taken away by its user
            self._since_s.pop(key, None)
            return None
        if not job.spec.suspend:
            return await self._give_up(job, "it was told to run while it was to make room")
        jobset = self._live.cluster.jobsets.get(key)
        if jobset is not None and not jobset.spec.suspend:
            if waited_s < _FOLLOWS_S:
                return Requeue.after(_LOOK_S)
            reason = f"its JobSet was not suspended within {_FOLLOWS_S:g} s"
            self._say(job, "EvictionUndone", f"It goes on, for {reason}")
            return await self._give_up(job, reason)
        if self._live.members.placed_of(key) and waited_s < _STUCK_S:
            return Requeue.after(_LOOK_S)
        return await self._resume(job)

    async def _give_up(self, job: TrainJob, reason: str) -> Requeue | None:
        """Let go of a TrainJob that does not make room, and let it alone."""
        again = await self._resume(job)
        if again is None:
            self.let_alone(Owner(job.metadata.key, job.metadata.uid), reason)
        return again

    def _look_at_rest(self, key: Key, job: TrainJob | None) -> None:
        """Let a TrainJob be chosen again when it has rested, and forget that after as long."""
        rest = self._rests.get(key)
        if rest is None:
            return
        left_s = rest.until_s - self._client.clock.monotonic_s()
        if left_s > _EARLY_S:
            self._queue.add_after(key, left_s)
            return
        self._wake(self._live.refuse(key, None))
        known_s = left_s + 2 * rest.length_s
        if job is None or known_s <= _EARLY_S:
            del self._rests[key]
        else:
            self._queue.add_after(key, known_s)

    async def _resume(self, job: TrainJob) -> Requeue | None:
        """Give up what we own; where its user wants it suspended, it stays so."""
        key = job.metadata.key
        request = get(TRAINJOBS, key)
        try:
            raw = await self._client.ask(_Raw, request)
            stays = raw.spec.suspend and _is_wished(raw.metadata)
            spec = {"spec": {"suspend": True}} if stays and not _is_shared(raw.metadata) else {}
            fields = {"metadata": {"uid": job.metadata.uid}, **spec}
            await self._client.apply(TRAINJOBS, key, fields, _OURS)
        except NotFound:
            return None
        except (Invalid, Conflict) as error:
            self._log.warning("not resumed", trainjob=str(key), error=str(error))
            return Requeue.SOON
        self._since_s.pop(key, None)
        self._log.info("trainjob resumed", trainjob=str(key), stays=stays)
        if not stays:
            self._say(job, "Resumed", "It is to run again, and waits for its place")
        return None

    def _say(self, job: TrainJob, reason: str, message: str) -> None:
        meta = job.metadata
        regarding = Regarding(
            TRAINJOBS.api_version, TRAINJOBS.kind, meta.namespace, meta.name, meta.uid
        )
        self._recorder.post(regarding, reason, message)


def _is_wished(meta: _Owned) -> bool:
    """Say whether somebody besides us wants it suspended."""
    if _is_shared(meta):
        return True
    return _asks_for_it(meta.annotations) and not _record(meta.annotations).get("applied", False)


def _is_shared(meta: _Owned) -> bool:
    """Say whether somebody owns the suspension as we do: it stays when we give it up."""
    others = (it for it in meta.managed_fields if it.manager != _MANAGER and not it.subresource)
    return any("f:suspend" in it.fields_v1.get("f:spec", {}) for it in others)


def _asks_for_it(annotations: Mapping[str, str]) -> bool:
    """Say whether the manifest that was applied last asks for the suspension."""
    try:
        applied = json.loads(annotations.get(LAST_APPLIED, "{}"))
    except ValueError:
        return False
    spec = applied.get("spec") if isinstance(applied, dict) else None
    return isinstance(spec, dict) and spec.get("suspend") is True


def _record(annotations: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        record = json.loads(annotations.get(EVICTED_BY, "{}"))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
