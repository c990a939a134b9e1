"""A cluster with one TrainJob called `job`, for the tests of `why`."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from tests.support.clock import VirtualClock
from tests.support.fakes.readonly_server import ReadOnlyApiServer
from tests.support.workloads.jobsets import UID, admitted, recorded
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import EVENTS, JOBSETS, LEASES, PODGROUPS, PODS, QUEUES, TRAINJOBS
from trainer_kai.cli.commands.plan.preview import PreviewContext, preview_workload
from trainer_kai.cli.commands.why.fetch import fetch_report
from trainer_kai.cli.commands.why.report import TrainJobReport
from trainer_kai.cli.commands.why.snapshot import WhySubject
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.policy.podgroups.manifests import GroupingMode
from trainer_kai.policy.workloads.jobset import jobset_workload

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
NO_ROOM_REASONS: Final = (
    ("PodSchedulingErrors", "no nodes"),
    ("NoCapacity", "0 of 4 pods have room. It can."),
)
_SCHEDULER: Final = "kai-scheduler"


class TrainJobCluster:
    """The objects: TrainJob, JobSet and its PodGroups, a queue, a scheduler that leads; no pods."""

    def __init__(self, runtime: str = "torch-distributed", mode: GroupingMode = "bundled") -> None:
        self.store = ReadOnlyApiServer()
        jobset = admitted(recorded(runtime), staged=mode == "external")
        self.trainjob: dict[str, Any] = {
            "metadata": {"namespace": "default", "name": "job", "uid": "uid-job"},
            "spec": {"runtimeRef": {"name": runtime}},
        }
        self.jobset: dict[str, Any] = msgspec.to_builtins(jobset)
        owner = {"kind": "TrainJob", "name": "job", "uid": "uid-job", "controller": True}
        self.jobset["metadata"] |= {"name": "job", "ownerReferences": [owner]}
        context = PreviewContext(mode, _SCHEDULER, "default-queue")
        created = preview_workload(jobset_workload(jobset), context).manifests
        self.groups: dict[str, dict[str, Any]] = {
            group["metadata"]["name"].removeprefix(f"pg-job-{UID}").removeprefix("-"): group
            for group in created
        }
        self._pod_count = 0
        self._store()
        self.store.put(QUEUES, {"metadata": {"name": "team-a"}})
        self.lease(5)

    def _store(self) -> None:
        self.store.put(TRAINJOBS, self.trainjob)
        self.store.put(JOBSETS, self.jobset)
        for group in self.groups.values():
            self.store.put(PODGROUPS, group)

    # What else is so

    def pods(self, replicated_job: str, number: int = 1, group: str = "", **fields: Any) -> None:
        """Have some more pods; keywords are parts of spec, status and labels, and `grouped`."""
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "job",
            "jobset.sigs.k8s.io/jobset-uid": UID,
            "jobset.sigs.k8s.io/replicatedjob-name": replicated_job,
            "kai.scheduler/subgroup-name": f"{replicated_job}-replica-0",
            **fields.get("labels", {}),
        }
        name = f"pg-job-{UID}" + (f"-{group}" if group else "")
        for _ in range(number):
            self._pod_count += 1
            annotations = {"pod-group-name": name} if fields.get("grouped", True) else {}
            meta = {
                "namespace": "default",
                "name": f"job-{replicated_job}-0-{self._pod_count}",
                "uid": f"uid-{self._pod_count}",
                "labels": labels,
                "annotations": annotations,
                **fields.get("meta", {}),
            }
            spec = {"schedulerName": _SCHEDULER, **fields.get("spec", {})}
            status = {"phase": "Pending", **fields.get("status", {})}
            self.store.put(PODS, {"metadata": meta, "spec": spec, "status": status})

    def running(self, replicated_job: str, number: int = 1, group: str = "") -> None:
        """Have some more pods, which run."""
        spec, status = {"nodeName": "node-1"}, {"phase": "Running"}
        self.pods(replicated_job, number, group, spec=spec, status=status)

    def condition(self, *reasons: tuple[str, str], group: str = "", message: str = "") -> None:
        """Have a condition on a PodGroup."""
        condition = {
            "type": "UnschedulableOnNodePool",
            "nodePool": "default",
            "status": "True",
            "reason": "Unschedulable",
            "message": message or reasons[-1][1],
            "reasons": [{"reason": reason, "message": text} for reason, text in reasons],
            "lastTransitionTime": "2025-12-31T23:58:00+00:00",
        }
        self.groups[group]["status"] = {"schedulingConditions": [condition]}
        self._store()

    def counted(self, **succeeded: int) -> None:
        """Have Jobs of some replicatedJobs over; underscores stand for hyphens."""
        counts = [
            {"name": name.replace("_", "-"), "succeeded": number}
            for name, number in succeeded.items()
        ]
        self.jobset["status"] = {"replicatedJobsStatus": counts}
        self._store()

    def event(self, about: str, reason: str, message: str, year: int = 2026) -> None:
        """Have an event about an object: its kind and name."""
        kind, _, name = about.partition(" ")
        meta = {"namespace": "default", "name": f"{name}.{reason}"}
        involved = {"kind": kind, "namespace": "default", "name": name}
        fields = {"reason": reason, "message": message, "type": "Warning", "eventTime": f"{year}"}
        self.store.put(EVENTS, {"metadata": meta, "involvedObject": involved, **fields})

    def lease(self, age_s: int, holder: str = "kai-0_x") -> None:
        """Have the scheduler's Lease renewed so long ago."""
        renewed = (NOW - timedelta(seconds=age_s)).isoformat().replace("+00:00", ".000000Z")
        meta = {"namespace": "trainer-kai", "name": "trainer-kai-scheduler"}
        self.store.put(
            LEASES, {"metadata": meta, "spec": {"holderIdentity": holder, "renewTime": renewed}}
        )

    def change(self, **spec: Any) -> None:
        """Change the spec of the TrainJob."""
        self.trainjob["spec"] |= spec
        self._store()

    # The question

    async def why(self, pod: str = "", job: str = "") -> TrainJobReport:
        """Return the report on the TrainJob, or on a pod or Job."""
        kind = "Pod" if pod else "Job" if job else "TrainJob"
        return await self.why_of(kind, pod or job or "job")

    async def reasons(self) -> tuple[str, ...]:
        """Return the state of the TrainJob, and its reasons with those of its PodGroups."""
        report = await self.why()
        found = filter(None, (report.reason, *(it.reason for it in report.podgroups)))
        return report.state, *(f"{it.title}: {it.message}" for it in found)

    async def why_of(self, kind: str, name: str) -> TrainJobReport:
        """Return the report on an object; "" is any kind."""
        access = RestConfig("https://fake", StaticToken(""), namespace="default")
        client = Client(access, self.store, VirtualClock(NOW), NoRequestObserver())
        key = Key("default", name)
        return await fetch_report(client, WhySubject(kind, key, _SCHEDULER, "default-queue"))


def without_capacity(cluster: TrainJobCluster) -> None:
    """Have pods for which our scheduler finds no room."""
    cluster.pods("node", 4)
    cluster.condition(*NO_ROOM_REASONS)
