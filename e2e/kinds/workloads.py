"""A workload of each kind: eight GPUs in all, of which all or none are on the node. Pure."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from e2e.cluster.resources import JOBS, Obj, Resource
from e2e.fixtures.install import DEPLOYMENTS
from e2e.fixtures.podgroups import QUEUE
from e2e.kinds.stand_ins import (
    LEADER_WORKER_SETS,
    MODELS,
    MPI_JOBS,
    PYTORCH_JOBS,
    RAY_CLUSTERS,
    RAY_JOBS,
    pods_spec,
)
from trainer_kai.api.names import BATCH_MIN_MEMBER, PREEMPTIBILITY

NAME: Final = "x"
GPUS: Final = 8
_TWO: Final = {BATCH_MIN_MEMBER: "2"}


class KindRow(NamedTuple):
    resource: Resource
    spec: Obj
    podgroups: tuple[str, ...] = ("",)  # what follows pg-NAME-UID in their names
    annotations: Mapping[str, str] = {}
    suspend_path: tuple[str, ...] = ()  # (): its pods are deleted
    ending: str = ""  # a part of the names of the pods that end it; "": it does not end
    ended: tuple[str, str] = ("Succeeded", "")  # the condition, or a field of its status

    def manifest(self, namespace: str) -> Obj:
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {
                "namespace": namespace,
                "name": NAME,
                "labels": {QUEUE: "borrower", PREEMPTIBILITY: "preemptible"},
                "annotations": dict(self.annotations),
            },
            "spec": self.spec,
        }


def _replicas(count: int, gpus: int) -> Obj:
    return {"replicas": count, "template": pods_spec(gpus)}


def _ray(gpus: int) -> Obj:
    group: Obj = {"groupName": "small", "minReplicas": 3, "maxReplicas": 3, **_replicas(3, gpus)}
    head: Obj = {"rayStartParams": {}, "template": pods_spec(gpus)}
    return {"headGroupSpec": head, "workerGroupSpecs": [{**group, "rayStartParams": {}}]}


def _deployment() -> Obj:
    template, labels = pods_spec(4, restart="Always"), {"app": NAME}
    template["metadata"]["labels"] = labels
    return {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}


_MASTER: Final[Obj] = {"Master": _replicas(1, 2), "Worker": _replicas(3, 2)}
_LAUNCHED: Final[Obj] = {"Launcher": _replicas(1, 0), "Worker": _replicas(2, 4)}
_RUN_POLICY: Final = ("spec", "runPolicy", "suspend")
_SUSPEND: Final = ("spec", "suspend")
_JOB: Final[Obj] = {
    "parallelism": 2,
    "completions": 2,
    "completionMode": "Indexed",
    "backoffLimit": 0,
    "template": pods_spec(4),
}
_WAITS: Final = "WaitForWorkersReady"
_RAY_JOB: Final[Obj] = {
    "entrypoint": "train",
    "rayClusterSpec": _ray(2),
    "shutdownAfterJobFinishes": True,
    "submitterPodTemplate": pods_spec(0),
}
_LWS: Final[Obj] = {
    "replicas": 1,
    "leaderWorkerTemplate": {"size": 4, "workerTemplate": pods_spec(2)},
}
_COMPLETE: Final = ("Complete", "")
ROWS: Final = (
    KindRow(JOBS, _JOB, ("",), _TWO, _SUSPEND, NAME, _COMPLETE),
    KindRow(DEPLOYMENTS, _deployment(), ("",), _TWO),
    KindRow(
        PYTORCH_JOBS,
        {"pytorchReplicaSpecs": _MASTER},
        suspend_path=_RUN_POLICY,
        ending="master",
    ),
    KindRow(
        MPI_JOBS,
        {"launcherCreationPolicy": _WAITS, "mpiReplicaSpecs": _LAUNCHED},
        suspend_path=_RUN_POLICY,
        ending="launcher",
    ),
    KindRow(RAY_CLUSTERS, _ray(2), suspend_path=_SUSPEND),
    KindRow(
        RAY_JOBS,
        _RAY_JOB,
        ("", "-submitter"),
        suspend_path=_SUSPEND,
        ending="submitter",
        ended=("", "jobDeploymentStatus"),
    ),
    KindRow(LEADER_WORKER_SETS, _LWS, ("-group-0",)),
    KindRow(MODELS, {"pods": 2, "template": pods_spec(4)}, ("",), _TWO),
)


def value_at(obj: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        obj = obj.get(name, {})
    return obj
