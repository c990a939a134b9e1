"""A TrainJob called `job` as somebody finds it who asks why it waits."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from tests.support.clock import VirtualClock
from tests.support.jobsets import UID, admitted, recorded
from tests.support.shelf import Shelf
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import EVENTS, JOBSETS, LEASES, PODGROUPS, PODS, QUEUES, TRAINJOBS
from trainer_kai.cli.answer import Answer
from trainer_kai.cli.look import look_at_pod, look_at_trainjob
from trainer_kai.cli.preview import Surroundings, preview_jobset
from trainer_kai.kube.access import Access, Token
from trainer_kai.kube.client import Client, Unobserved
from trainer_kai.policy.groups import Mode

__all__ = ["NOW", "ROOM", "Scene", "without_room"]

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
ROOM: Final = ("PodSchedulingErrors", "no nodes"), ("NoCapacity", "0 of 4 pods have room. It can.")
_OURS: Final = "kai-scheduler"


class Scene:
    """The objects: TrainJob, JobSet and its groups, a queue, a scheduler that leads; no pods."""

    def __init__(self, runtime: str = "torch-distributed", mode: Mode = "bundled") -> None:
        self.shelf = Shelf()
        jobset = admitted(recorded(runtime), staged=mode == "external")
        self.trainjob: dict[str, Any] = {
            "metadata": {"namespace": "default", "name": "job", "uid": "uid-job"},
            "spec": {"runtimeRef": {"name": runtime}},
        }
        self.jobset: dict[str, Any] = msgspec.to_builtins(jobset)
        owner = {"kind": "TrainJob", "name": "job", "uid": "uid-job", "controller": True}
        self.jobset["metadata"] |= {"name": "job", "ownerReferences": [owner]}
        made = preview_jobset(jobset, Surroundings(mode, _OURS, "default-queue")).groups
        self.groups: dict[str, dict[str, Any]] = {
            group["metadata"]["name"].removeprefix(f"pg-job-{UID}").removeprefix("-"): group
            for group in made
        }
        self._pods = 0
        self._put()
        self.shelf.put(QUEUES, {"metadata": {"name": "team-a"}})
        self.lease(5)

    def _put(self) -> None:
        self.shelf.put(TRAINJOBS, self.trainjob)
        self.shelf.put(JOBSETS, self.jobset)
        for group in self.groups.values():
            self.shelf.put(PODGROUPS, group)

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
            self._pods += 1
            annotations = {"pod-group-name": name} if fields.get("grouped", True) else {}
            meta = {
                "namespace": "default",
                "name": f"job-{replicated_job}-0-{self._pods}",
                "uid": f"uid-{self._pods}",
                "labels": labels,
                "annotations": annotations,
                **fields.get("meta", {}),
            }
            spec = {"schedulerName": _OURS, **fields.get("spec", {})}
            status = {"phase": "Pending", **fields.get("status", {})}
            self.shelf.put(PODS, {"metadata": meta, "spec": spec, "status": status})

    def running(self, replicated_job: str, number: int = 1, group: str = "") -> None:
        """Have some more pods, which run."""
        spec, status = {"nodeName": "node-1"}, {"phase": "Running"}
        self.pods(replicated_job, number, group, spec=spec, status=status)

    def said(self, *reasons: tuple[str, str], group: str = "", message: str = "") -> None:
        """Have a condition on a group."""
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
        self._put()

    def counted(self, **succeeded: int) -> None:
        """Have Jobs of some replicatedJobs over; underscores stand for hyphens."""
        counts = [
            {"name": name.replace("_", "-"), "succeeded": number}
            for name, number in succeeded.items()
        ]
        self.jobset["status"] = {"replicatedJobsStatus": counts}
        self._put()

    def event(self, about: str, reason: str, message: str, year: int = 2026) -> None:
        """Have an event about an object: its kind and name."""
        kind, _, name = about.partition(" ")
        meta = {"namespace": "default", "name": f"{name}.{reason}"}
        who = {"kind": kind, "namespace": "default", "name": name}
        fields = {"reason": reason, "message": message, "type": "Warning", "eventTime": f"{year}"}
        self.shelf.put(EVENTS, {"metadata": meta, "involvedObject": who, **fields})

    def lease(self, age_s: int, holder: str = "kai-0_x") -> None:
        """Have the scheduler's Lease renewed so long ago."""
        renewed = (NOW - timedelta(seconds=age_s)).isoformat().replace("+00:00", ".000000Z")
        meta = {"namespace": "trainer-kai", "name": "trainer-kai-scheduler"}
        self.shelf.put(
            LEASES, {"metadata": meta, "spec": {"holderIdentity": holder, "renewTime": renewed}}
        )

    def change(self, **spec: Any) -> None:
        """Change the spec of the TrainJob."""
        self.trainjob["spec"] |= spec
        self._put()

    # The question

    async def why(self, pod: str = "") -> Answer:
        """Ask."""
        access = Access("https://fake", Token(""), namespace="default")
        client = Client(access, self.shelf, VirtualClock(NOW), Unobserved())
        if pod:
            return await look_at_pod(client, Key("default", pod), _OURS)
        return await look_at_trainjob(client, Key("default", "job"), _OURS)


def without_room(scene: Scene) -> None:
    """Have pods for which our scheduler finds no room."""
    scene.pods("node", 4)
    scene.said(*ROOM)
