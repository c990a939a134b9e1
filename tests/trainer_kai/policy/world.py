"""A JobSet and a scheduler that knows only groups and pods, played until nothing is left to do.

Nobody is helped: a pod ends only when nothing else can happen, and while any pod waits only those
end that its group says it waits for. So who waits for a pod that cannot exist yet is caught.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

from tests.support.groupbinder import bindable
from tests.support.jobsetmodel import (
    Job,
    ModelPod,
    State,
    finished,
    restarted,
    settled,
    suspended,
    with_pod,
)
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.pod import Pod
from trainer_kai.policy.anticipated import read_anticipated
from trainer_kai.policy.census import census, sight
from trainer_kai.policy.groups import Fields, Rules, group_of_unit, groups
from trainer_kai.policy.names import leaf_name
from trainer_kai.policy.units import Outline, outline

__all__ = ["OURS", "End", "played", "written"]

OURS: Final = "kai-scheduler"
_ANTICIPATED: Final = "trainer-kai.dev/anticipated"


class End(NamedTuple):
    """How it ended: which Jobs are Complete, and which pods wait for ever."""

    finished: frozenset[Job]
    stuck: tuple[str, ...]


def played(jobset: JobSet, rules: Rules | None, seed: int = 0, plan: Outline | None = None) -> End:
    """Play to the end; without rules every pod is bound at once, and nothing ever goes wrong."""
    if plan is None and rules:
        plan = outline(jobset, rules.scheduler_name, staged=rules.mode == "external")
    return _World(jobset, rules, plan or Outline(()), Random(seed)).run()


def written(jobset: JobSet, plan: Outline, rules: Rules, pods: list[Fields]) -> list[Fields]:
    """Return the groups that the podgrouper would write."""
    counts = census(sight(decode(Pod, encode(pod))) for pod in pods)
    return list(groups(jobset, plan, rules, counts))


class _World:
    def __init__(self, jobset: JobSet, rules: Rules | None, plan: Outline, chance: Random) -> None:
        self._jobset, self._rules, self._plan, self._chance = jobset, rules, plan, chance
        self._state = State()
        self._events = ["fail", "fail", "restart"] if rules else []
        if jobset.spec.startup_policy.startup_policy_order != "InOrder":
            # With it JobSet v0.12 takes a suspended Job for ready if enough of its pods succeeded
            # before, and does not resume it.
            self._events += ["suspend"] if rules else []

    @property
    def _strict(self) -> Rules:
        assert self._rules
        return self._rules

    def _groups(self) -> list[Fields]:
        pods = [self._object(pod) for pod in self._state.pods]
        return written(self._jobset, self._plan, self._strict, pods)

    def run(self) -> End:
        for _ in range(2000):
            self._state = settled(self._jobset.spec, self._state)
            if self._bound() or self._began() or self._removed():
                continue
            waiting = self._with("Pending")
            if waiting and not self._ended(self._awaited()):
                return self._end(waiting)
            if not waiting and not self._happened() and not self._ended(None):
                return self._end([])
        raise AssertionError("it never ends")

    def _end(self, stuck: list[ModelPod]) -> End:
        names = tuple(sorted(_name(pod) for pod in stuck))
        return End(finished(self._jobset.spec, self._state), names)

    def _bound(self) -> bool:
        """Bind what may be; another scheduler binds its pods at once."""
        if self._rules is None:
            return self._now(self._with("Pending"), "Running")
        foreign = [pod for pod in self._with("Pending") if not self._group_of(pod)]
        objects = [self._object(pod) for pod in self._state.pods]
        allowed = {name for _, name in bindable(self._groups(), objects)}
        ours = [pod for pod in self._with("Pending") if _name(pod) in allowed]
        return self._now(foreign + ours, "Running")

    def _began(self) -> bool:
        return self._now(self._some(self._with("Running")), "Ready")

    def _removed(self) -> bool:
        """Let go of one Job of an older attempt."""
        if not self._state.previous:
            return False
        gone = self._chance.choice(sorted(self._state.previous))
        pods = tuple(pod for pod in self._state.pods if pod.job != gone or not pod.is_going)
        self._state = self._state._replace(pods=pods, previous=self._state.previous - {gone})
        return True

    def _happened(self) -> bool:
        """Let the user, or bad luck, do something now and then."""
        if self._state.is_suspended:
            self._state = suspended(self._state, now=False)
            return True
        if not self._events or self._chance.random() < 0.5:
            return False
        event = self._events.pop(self._chance.randrange(len(self._events)))
        if event == "fail":
            return self._now(self._some(self._with("Ready"))[:1], "Failed")
        if event == "suspend":
            self._state = suspended(self._state, now=True)
        else:
            self._state = restarted(self._state)
        return True

    def _ended(self, names: frozenset[str] | None) -> bool:
        """Let some pods succeed: of these replicatedJobs, or of all."""
        ready = [pod for pod in self._with("Ready") if names is None or pod.job.name in names]
        return self._now(self._some(ready), "Succeeded")

    def _awaited(self) -> frozenset[str]:
        """Return the replicatedJobs that must be Complete before those who wait may begin."""
        waiting = {self._group_of(pod) for pod in self._with("Pending")}
        found: set[str] = set()
        for group in self._groups():
            if group["metadata"]["name"] in waiting:
                text = group["metadata"]["annotations"].get(_ANTICIPATED, "")
                for after in read_anticipated(text).after:
                    found |= {after.replicated_job} if after.status == "Complete" else set()
                    found |= self._before(after.replicated_job)
        return frozenset(found)

    def _before(self, name: str) -> set[str]:
        """Return what must be Complete before the Jobs of a replicatedJob are made."""
        one = next(job for job in self._jobset.spec.replicated_jobs if job.name == name)
        found: set[str] = set()
        for dependency in one.depends_on:
            found |= {dependency.name} if dependency.status == "Complete" else set()
            found |= self._before(dependency.name)
        return found

    def _with(self, phase: str) -> list[ModelPod]:
        return [pod for pod in self._state.pods if pod.phase == phase and pod.is_alive]

    def _some(self, pods: list[ModelPod]) -> list[ModelPod]:
        """Return at least one of them, where there is one."""
        return self._chance.sample(pods, self._chance.randint(1, len(pods))) if pods else []

    def _now(self, pods: list[ModelPod], phase: str) -> bool:
        for pod in pods:
            self._state = with_pod(self._state, pod, phase)
        return bool(pods)

    def _group_of(self, pod: ModelPod) -> str:
        unit = self._plan.unit_of(pod.job.name)
        return group_of_unit(self._jobset, unit) if unit else ""

    def _object(self, pod: ModelPod) -> Fields:
        labels = dict(_labels(pod))
        group = self._group_of(pod)
        if group and self._strict.mode == "bundled":
            labels["kai.scheduler/subgroup-name"] = leaf_name(pod.job.name, pod.job.number)
        meta: dict[str, Any] = {"name": _name(pod), "namespace": "default", "labels": labels}
        if group:
            meta["annotations"] = {"pod-group-name": group}
        if pod.is_going:
            meta["deletionTimestamp"] = "2026-01-05T09:00:00Z"
        is_ready = pod.phase == "Ready"
        phase = "Running" if is_ready else pod.phase
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(is_ready)}]}
        spec = {} if pod.phase == "Pending" else {"nodeName": "n"}
        return {"metadata": meta, "spec": spec, "status": status}


def _name(pod: ModelPod) -> str:
    return f"{pod.job.name}-{pod.job.number}-{pod.attempt}-{pod.serial}"


def _labels(pod: ModelPod) -> Iterator[tuple[str, str]]:
    yield "jobset.sigs.k8s.io/jobset-name", "job"
    yield "jobset.sigs.k8s.io/replicatedjob-name", pod.job.name
    yield "jobset.sigs.k8s.io/job-index", str(pod.job.number)
    yield "jobset.sigs.k8s.io/restart-attempt", str(pod.attempt)
    yield "batch.kubernetes.io/job-name", f"job-{pod.job.name}-{pod.job.number}"
