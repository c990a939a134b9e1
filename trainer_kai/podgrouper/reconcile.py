"""Brings groups in line with JobSets: the shell around `plan`.

All replicas follow the cluster; only the one that leads writes. It begins with every JobSet there
is, so what happened while nobody led is caught up with. Each write may be repeated: a group is
applied as a whole, and a pod is assigned by its uid.
"""

import asyncio
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Object, PartialObject
from trainer_kai.api.names import GANG, JOBSET_UID, MEMBERS, POD_GROUP, QUEUE, STAGE
from trainer_kai.api.pod import Pod
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import JOBS, JOBSETS, PODS, PRIORITY_CLASSES, TRAINJOBS
from trainer_kai.health import Health
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import Conflict, NotFound
from trainer_kai.kube.events import Recorder, Regarding
from trainer_kai.kube.known import Change, What
from trainer_kai.kube.observed import Observed
from trainer_kai.kube.queue import QueueSettings, Requeue, WorkQueue
from trainer_kai.kube.request import Selection, Target, Write
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.watch import Watch
from trainer_kai.metrics import Metrics
from trainer_kai.podgrouper.plan import Known, Plan, plan
from trainer_kai.podgrouper.roster import Roster
from trainer_kai.podgrouper.seen import FIELD_MANAGER, GROUPS, WatchedGroup
from trainer_kai.policy.groups import Fields, Rules

__all__ = ["Podgrouper"]

T = TypeVar("T", bound=Object)

_JOB_METADATA, _TRAINJOB_METADATA = (
    Resource(it.group, it.version, it.plural, it.kind, namespaced=True, struct=PartialObject)
    for it in (JOBS, TRAINJOBS)
)
_APPLY: Final = Write(field_manager=FIELD_MANAGER, force=True)
_ASSIGN: Final = Write(field_manager=FIELD_MANAGER)


class Podgrouper:
    """What is known, and whoever writes because of it."""

    def __init__(
        self, rules: Rules, recorder: Recorder, metrics: Metrics, log: FilteringBoundLogger
    ) -> None:
        self._rules = rules
        self._recorder = recorder
        self._metrics = metrics
        self._log = log
        self._roster = Roster(counts=rules.mode == "external")
        self._undefined: frozenset[str] = frozenset()
        self._warned: dict[Key, str] = {}  # of which JobSet it was said that it never runs
        self._kept: dict[Key, str] = {}  # what of which JobSet was said not to count yet
        self._applying: dict[Key, bool] = {}  # no: it was deleted before the answer came
        self._queue: WorkQueue[Key] | None = None  # while we lead
        self._unsynced = 6
        self._synced = asyncio.Event()

    def follow(self, run: Runner, client: Client, seen: Observed, health: Health) -> None:
        """Start the watches; what they tell is known from then on."""
        ours = Selection(labels=GANG)
        of_jobsets = Selection(labels=JOBSET_UID)
        watches: list[tuple[str, Watch[Any], Callable[[Change[Any]], None]]] = [
            ("jobsets", Watch(client, Target(JOBSETS), seen), self._jobset),
            ("podgroups", Watch(client, Target(GROUPS, selection=ours), seen), self._group),
            (
                "jobs",
                Watch(client, Target(_JOB_METADATA, "", of_jobsets, only_metadata=True), seen),
                self._job,
            ),
            (
                "trainjobs",
                Watch(client, Target(_TRAINJOB_METADATA, only_metadata=True), seen),
                self._trainjob,
            ),
            ("pods", Watch(client, Target(PODS, selection=ours), seen), self._pod),
            ("priorityclasses", Watch(client, Target(PRIORITY_CLASSES), seen), self._class),
        ]
        for name, watch, tell in watches:
            health.needs(f"{name} followed", watch.missing)
            run.start(f"watch {name}", _following(watch, tell, self._once_synced()))

    async def lead(self, client: Client) -> None:
        """Write, as long as we lead; *client* asks the fence."""
        await self._synced.wait()
        self._log.info("grouping begins", jobsets=len(self._roster.jobsets))
        settings = QueueSettings("jobsets", workers=8)
        queue: WorkQueue[Key] = WorkQueue(
            lambda key: self.reconcile(client, key),
            settings,
            client.clock,
            self._log,
            metrics=self._metrics.queue("jobsets"),
        )
        for key in self._roster.jobsets:
            queue.add(key)
        self._queue = queue
        try:
            await queue.run()
        finally:
            self._queue = None

    async def reconcile(self, client: Client, key: Key) -> Requeue | None:
        """Bring the groups and pods of one JobSet in line."""
        jobset = self._roster.jobsets.get(key)
        if jobset is None:
            return None  # gone, and its groups go with it
        groups = self._roster.groups(jobset.metadata.uid)
        known = Known(
            groups,
            self._undefined,
            self._roster.has_trainjob(jobset),
            self._roster.is_running(jobset.metadata.uid),
            self._roster.classes,
        )
        steps = plan(jobset, known, self._roster.members(jobset), self._rules)
        self._warn(jobset, steps)
        self._tell_kept(jobset, steps)
        before = self._queues(jobset)
        try:
            for fields in steps.apply:
                await self._apply(client, fields)
        finally:
            if steps.is_first and self._roster.groups(jobset.metadata.uid):
                self._tell(jobset, steps)
            self._tell_moved(jobset, before)
        for pod, merged in steps.assign:
            try:
                await client.merge(PODS, pod, merged, _ASSIGN)
            except (NotFound, Conflict):
                continue  # gone, or another of the same name: there will be a change
            self._metrics.pods_assigned.inc()
            self._log.info("pod assigned", pod=str(pod), group=_group_in(merged))
        return None

    async def _apply(self, client: Client, fields: Fields) -> None:
        key = Key(fields["metadata"]["namespace"], fields["metadata"]["name"])
        self._applying[key] = True
        try:
            answered = await client.apply(GROUPS, key, fields, _APPLY)
        finally:
            is_there = self._applying.pop(key)
        if is_there:
            self._roster.group_changed(key, answered)  # or the next look would apply it again
        self._undefined |= fields["spec"].keys() - answered.spec.keys()  # an older KAI's definition
        self._metrics.podgroups_applied.inc()
        self._log.info("pod group applied", group=str(key), queue=fields["spec"]["queue"])

    def _tell(self, jobset: JobSet, steps: Plan) -> None:
        """Say what was planned for a TrainJob."""
        told = "; ".join(_described(fields) for fields in steps.apply)
        queue = jobset.metadata.labels.get(QUEUE) or self._rules.default_queue
        self._recorder.post(_regarding(jobset), "PodGroupsCreated", f"Queue {queue}: {told}")

    def _tell_moved(self, jobset: JobSet, before: AbstractSet[str]) -> None:
        """Say that groups are in another queue now: as soon as one of them is, and only then."""
        moved = self._queues(jobset) - before
        if before and moved:
            message = f"Queue {', '.join(sorted(before))} before, now {', '.join(sorted(moved))}"
            self._recorder.post(_regarding(jobset), "QueueChanged", message)

    def _queues(self, jobset: JobSet) -> AbstractSet[str]:
        groups = self._roster.groups(jobset.metadata.uid).values()
        return {group.spec.get("queue", "") for group in groups}

    def _warn(self, jobset: JobSet, steps: Plan) -> None:
        """Say what will never run, or is not understood; once, as long as this process lasts."""
        key, uid = jobset.metadata.key, jobset.metadata.uid
        findings = steps.outline.findings
        if findings and self._warned.get(key) != uid:
            self._warned[key] = uid
            for finding in findings:
                reason = "CannotRun" if finding.blocks else "Noted"
                self._recorder.post(_regarding(jobset), reason, str(finding), "Warning")

    def _tell_kept(self, jobset: JobSet, steps: Plan) -> None:
        """Say what does not count while pods run; once, until it is something else."""
        key, message = jobset.metadata.key, "; ".join(map(str, steps.kept))
        if message == self._kept.get(key, ""):
            return
        if message:
            self._kept[key] = message
            self._recorder.post(_regarding(jobset), "NotWhileRunning", message, "Warning")
        else:
            del self._kept[key]

    def _once_synced(self) -> Callable[[], None]:
        told = False

        def synced() -> None:
            nonlocal told
            if not told:
                told = True
                self._unsynced -= 1
                if not self._unsynced:
                    self._synced.set()

        return synced

    def _jobset(self, change: Change[JobSet]) -> None:
        if change.what is What.DELETED:
            self._warned.pop(change.key, None)
            self._kept.pop(change.key, None)
        self._look(self._roster.jobset_changed(change.key, _present(change)))

    def _group(self, change: Change[Any]) -> None:
        group: WatchedGroup | None = _present(change)
        if group is None:
            if change.key in self._applying:
                self._applying[change.key] = False
            self._look(self._roster.group_gone(change.key, change.uid))
        else:
            self._look(self._roster.group_changed(change.key, group))

    def _job(self, change: Change[PartialObject]) -> None:
        self._look(self._roster.job_changed(change.key, _present(change)))

    def _trainjob(self, change: Change[PartialObject]) -> None:
        for key in self._roster.trainjob_changed(change.key, _present(change)):
            self._look(key)

    def _pod(self, change: Change[Pod]) -> None:
        self._look(self._roster.pod_changed(change.key, _present(change)))

    def _class(self, change: Change[PriorityClass]) -> None:
        self._roster.class_changed(change.key.name, _present(change))

    def _look(self, key: Key | None) -> None:
        if key is not None and self._queue is not None:
            self._queue.add(key)


def _regarding(jobset: JobSet) -> Regarding:
    """Return where people look: the TrainJob, or a JobSet that has none."""
    meta = jobset.metadata
    owner = meta.controller
    return Regarding(
        owner.api_version if owner else JOBSETS.api_version,
        owner.kind if owner else JOBSETS.kind,
        meta.namespace,
        owner.name if owner else meta.name,
        owner.uid if owner else meta.uid,
    )


def _present(change: Change[T]) -> T | None:
    return None if change.what is What.DELETED else change.object


def _following(
    watch: Watch[Any], tell: Callable[[Change[Any]], None], synced: Callable[[], None]
) -> Callable[[], Coroutine[Any, Any, None]]:
    return lambda: watch.run(tell, synced)


def _described(fields: Fields) -> str:
    notes = fields["metadata"]["annotations"]
    return f"{notes[MEMBERS]} ({notes[STAGE]})"


def _group_in(merged: Fields) -> str:
    group: str = merged["metadata"]["annotations"][POD_GROUP]
    return group
