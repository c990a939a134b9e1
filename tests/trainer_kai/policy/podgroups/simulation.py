"""A JobSet and a scheduler that knows only PodGroups and pods, simulated to the end.

A pod ends only when nothing else can happen, and while any pod waits only those end that its
PodGroup waits for. So a wait for a pod that cannot exist yet is found.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

from tests.support.workloads.jobset_model import (
    Job,
    ModelPod,
    State,
    finished,
    restarted,
    settled,
    suspended,
    with_pod,
)
from tests.support.workloads.podgroup_binder import bindable
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.pod import Pod
from trainer_kai.policy.podgroups.anticipated import read_anticipated
from trainer_kai.policy.podgroups.grouping import (
    PodGroupPlan,
    PodObservation,
    count_pods,
    observe_pod,
    plan_podgroups,
    podset_name,
)
from trainer_kai.policy.podgroups.manifests import (
    GroupingRules,
    ManifestFields,
    planned_podgroup_name,
    podgroup_manifests,
)
from trainer_kai.policy.workloads.jobset import jobset_pod_place, jobset_workload

OURS: Final = "kai-scheduler"
_ANTICIPATED: Final = "trainer-kai.dev/anticipated"


class SimulationOutcome(NamedTuple):
    finished: frozenset[Job]
    stuck: tuple[str, ...]


def simulate_jobset(
    jobset: JobSet, rules: GroupingRules | None, seed: int = 0, plan: PodGroupPlan | None = None
) -> SimulationOutcome:
    """Play to the end; without rules every pod is bound at once, and nothing ever goes wrong."""
    if plan is None and rules:
        plan = plan_podgroups(jobset, rules.scheduler_name, staged=rules.mode == "external")
    return _Simulation(jobset, rules, plan or PodGroupPlan(()), Random(seed)).run()


def written_podgroups(
    jobset: JobSet, plan: PodGroupPlan, rules: GroupingRules, pods: list[ManifestFields]
) -> list[ManifestFields]:
    counts = count_pods(_observation(pod) for pod in pods)
    return list(podgroup_manifests(jobset_workload(jobset), plan, rules, counts))


class _Simulation:
    def __init__(
        self, jobset: JobSet, rules: GroupingRules | None, plan: PodGroupPlan, chance: Random
    ) -> None:
        self._jobset, self._rules, self._plan, self._chance = jobset, rules, plan, chance
        self._state = State()
        self._events = ["fail", "fail", "restart"] if rules else []
        if jobset.spec.startup_policy.startup_policy_order != "InOrder":
            # With it JobSet v0.12 takes a suspended Job for ready if enough of its pods succeeded
            # before, and does not resume it.
            self._events += ["suspend"] if rules else []

    @property
    def _required_rules(self) -> GroupingRules:
        assert self._rules
        return self._rules

    def _manifests(self) -> list[ManifestFields]:
        pods = [self._pod_object(pod) for pod in self._state.pods]
        return written_podgroups(self._jobset, self._plan, self._required_rules, pods)

    def run(self) -> SimulationOutcome:
        for _ in range(2000):
            self._state = settled(self._jobset.spec, self._state)
            if self._bind() or self._make_ready() or self._remove_old_job():
                continue
            waiting = self._in_phase("Pending")
            if waiting and not self._complete(self._awaited_jobs()):
                return self._end(waiting)
            if not waiting and not self._random_event() and not self._complete(None):
                return self._end([])
        raise AssertionError("it never ends")

    def _end(self, stuck: list[ModelPod]) -> SimulationOutcome:
        names = tuple(sorted(_name(pod) for pod in stuck))
        return SimulationOutcome(finished(self._jobset.spec, self._state), names)

    def _bind(self) -> bool:
        if self._rules is None:
            return self._set_phase(self._in_phase("Pending"), "Running")
        foreign = [pod for pod in self._in_phase("Pending") if not self._podgroup_of(pod)]
        objects = [self._pod_object(pod) for pod in self._state.pods]
        allowed = {name for _, name in bindable(self._manifests(), objects)}
        scheduled = [pod for pod in self._in_phase("Pending") if _name(pod) in allowed]
        return self._set_phase(foreign + scheduled, "Running")

    def _make_ready(self) -> bool:
        return self._set_phase(self._sample(self._in_phase("Running")), "Ready")

    def _remove_old_job(self) -> bool:
        if not self._state.previous:
            return False
        removed = self._chance.choice(sorted(self._state.previous))
        pods = tuple(pod for pod in self._state.pods if pod.job != removed or not pod.is_going)
        self._state = self._state._replace(pods=pods, previous=self._state.previous - {removed})
        return True

    def _random_event(self) -> bool:
        if self._state.is_suspended:
            self._state = suspended(self._state, now=False)
            return True
        if not self._events or self._chance.random() < 0.5:
            return False
        event = self._events.pop(self._chance.randrange(len(self._events)))
        if event == "fail":
            return self._set_phase(self._sample(self._in_phase("Ready"))[:1], "Failed")
        if event == "suspend":
            self._state = suspended(self._state, now=True)
        else:
            self._state = restarted(self._state)
        return True

    def _complete(self, names: frozenset[str] | None) -> bool:
        ready = [pod for pod in self._in_phase("Ready") if names is None or pod.job.name in names]
        return self._set_phase(self._sample(ready), "Succeeded")

    def _awaited_jobs(self) -> frozenset[str]:
        waiting = {self._podgroup_of(pod) for pod in self._in_phase("Pending")}
        found: set[str] = set()
        for group in self._manifests():
            if group["metadata"]["name"] in waiting:
                text = group["metadata"]["annotations"].get(_ANTICIPATED, "")
                for after in read_anticipated(text).after:
                    found |= {after.replicated_job} if after.status == "Complete" else set()
                    found |= self._complete_before(after.replicated_job)
        return frozenset(found)

    def _complete_before(self, name: str) -> set[str]:
        one = next(job for job in self._jobset.spec.replicated_jobs if job.name == name)
        found: set[str] = set()
        for dependency in one.depends_on:
            found |= {dependency.name} if dependency.status == "Complete" else set()
            found |= self._complete_before(dependency.name)
        return found

    def _in_phase(self, phase: str) -> list[ModelPod]:
        return [pod for pod in self._state.pods if pod.phase == phase and pod.is_alive]

    def _sample(self, pods: list[ModelPod]) -> list[ModelPod]:
        return self._chance.sample(pods, self._chance.randint(1, len(pods))) if pods else []

    def _set_phase(self, pods: list[ModelPod], phase: str) -> bool:
        for pod in pods:
            self._state = with_pod(self._state, pod, phase)
        return bool(pods)

    def _podgroup_of(self, pod: ModelPod) -> str:
        podgroup = self._plan.podgroup_of(pod.job.name)
        return planned_podgroup_name(self._jobset, podgroup) if podgroup else ""

    def _pod_object(self, pod: ModelPod) -> ManifestFields:
        labels = dict(_labels(pod))
        group = self._podgroup_of(pod)
        if group and self._required_rules.mode == "bundled":
            labels["kai.scheduler/subgroup-name"] = podset_name(pod.job.name, pod.job.number)
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


def _observation(obj: dict[str, Any]) -> PodObservation:
    pod = decode(Pod, encode(obj))
    return observe_pod(pod, jobset_pod_place(pod.metadata.labels))
