"""A cluster with workloads of users, for the tests of `why`."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from tests.trainer_kai.cli.commands.why.trainjob_cluster import TrainJobCluster
from trainer_kai.api.jobset import Job, JobSet
from trainer_kai.api.names import CONTROLLER_UID, JOB_NAME
from trainer_kai.api.resources import JOBS, JOBSETS, PODGROUPS, PODS
from trainer_kai.cli.commands.plan.admission import review_workload
from trainer_kai.cli.commands.plan.preview import PreviewContext, preview_workload
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import Workload

SCHEDULER: Final = "kai-scheduler"
Fields: TypeAlias = dict[str, Any]


class UsersCluster(TrainJobCluster):
    """The cluster with one more workload, of a user, as admission and podgrouper leave it."""

    def submit(self, it: Fields, **fields: Any) -> Fields:
        """Have a workload; keywords are parts of its spec and status. Return its PodGroup."""
        it["metadata"]["uid"] = f"uid-{it['metadata']['name']}"
        it["spec"] |= fields.get("spec", {})
        it["status"] = fields.get("status", {})
        rules = GroupingRules("bundled", SCHEDULER, "default-queue")
        workload = review_workload(_workload_of(it), rules, {}).workload
        meta = workload.metadata
        it["metadata"] |= {"labels": dict(meta.labels), "annotations": dict(meta.annotations)}
        marked = msgspec.to_builtins(workload.spec)
        if it["kind"] == "JobSet":
            it["spec"]["replicatedJobs"] = marked["replicatedJobs"]
        else:
            (only,) = marked["replicatedJobs"]
            it["spec"]["template"] = only["template"]["spec"]["template"]
        self.store.put(JOBSETS if it["kind"] == "JobSet" else JOBS, it)
        context = PreviewContext("bundled", SCHEDULER, "default-queue")
        (group,) = preview_workload(workload, context).manifests
        self.store.put(PODGROUPS, group)
        return group

    def job_pods(self, name: str, number: int = 1, **fields: Any) -> None:
        """Have some more pods of a Job; keywords are parts of metadata, spec and status."""
        annotations = {"pod-group-name": f"pg-{name}-uid-{name}"}
        labels = {JOB_NAME: name, CONTROLLER_UID: f"uid-{name}", **fields.get("labels", {})}
        for _ in range(number):
            self._pod_count += 1
            meta = {
                "namespace": "default",
                "name": f"{name}-{self._pod_count}",
                "uid": f"uid-{self._pod_count}",
                "labels": labels,
                "annotations": annotations if fields.get("grouped", True) else {},
            }
            spec = {"schedulerName": SCHEDULER, **fields.get("spec", {})}
            status = {"phase": "Pending", **fields.get("status", {})}
            self.store.put(PODS, {"metadata": meta, "spec": spec, "status": status})


def _workload_of(it: Mapping[str, Any]) -> Workload:
    if it["kind"] == "JobSet":
        return jobset_workload(msgspec.convert(it, JobSet))
    workload = job_workload(msgspec.convert(it, Job))
    assert workload is not None
    return workload
