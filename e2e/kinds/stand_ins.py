"""Stand-ins for operators: they make the owners and pods that the real ones make, and no more.

Each follows a timeline. A pod that is gone is made again under another name, what is suspended has
no pods, and a workload ends with the pod that ends it for the real operator.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import CRDS, JOBS, PODS, Obj, Resource
from e2e.cluster.timeline import Key, State, Timeline
from e2e.cluster.trainjobs import condition
from trainer_kai.api.names import (
    KUBEFLOW_JOB_NAME,
    KUBEFLOW_JOB_ROLE,
    KUBEFLOW_REPLICA_INDEX,
    KUBEFLOW_REPLICA_TYPE,
    LWS_GROUP_INDEX,
    LWS_NAME,
    LWS_WORKER_INDEX,
    RAY_CLUSTER,
    RAY_GROUP,
    RAY_NODE_TYPE,
    RAY_OWNER,
    SCHEDULER_NAME,
)

STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
PYTORCH_JOBS: Final = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
MPI_JOBS: Final = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
RAY_CLUSTERS: Final = Resource("ray.io", "v1", "rayclusters", "RayCluster")
RAY_JOBS: Final = Resource("ray.io", "v1", "rayjobs", "RayJob")
LEADER_WORKER_SETS: Final = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"
)
MODELS: Final = Resource("example.com", "v1", "models", "Model")

_OF: Final = "stand-in-of"  # a label: the workload
_SLOT: Final = "stand-in-slot"  # which of its objects one is
_FOREVER_S: Final = 3600.0
_NUMBERS: Final = itertools.count(1)  # KWOK deletes pods by name: none is used twice

Children = Mapping[str, Obj]  # by slot


class Child(NamedTuple):
    """An object that an operator makes for a workload."""

    slot: str
    resource: Resource
    fields: Obj  # its spec, and its labels
    owner: str = ""  # the slot of its controller; "": the workload
    is_made_here: bool = True  # and not by the controller of its owner


class StandIn(NamedTuple):
    resource: Resource
    children: Callable[[Obj, Children], Iterable[Child]]  # that exist now, if it is not suspended
    suspend_path: tuple[str, ...] = ()
    ends_with: str = ""  # the slot
    end: Mapping[str, Any] = MappingProxyType({})  # its status then
    # The uids of what was suspended and not resumed by false: None if a missing field resumes it.
    left_suspended: set[str] | None = None

    @property
    def follows(self) -> tuple[Resource, ...]:
        """Return what its timeline has to record."""
        return (self.resource, PODS, *_BETWEEN)

    async def run(self, cluster: Cluster, seen: Timeline) -> None:
        """Be the operator, until it is cancelled."""
        while True:
            await seen.until(lambda state: bool(self._steps(state)), "something to do", _FOREVER_S)
            for step in self._steps(seen.state):
                if await step.take(cluster):
                    await seen.until(partial(step.is_seen, seen), f"{step} is seen")

    def _steps(self, state: State) -> "list[_Step]":
        return [
            step
            for key, obj in state.items()
            if key.resource == self.resource and _OF not in obj["metadata"].get("labels", {})
            for step in self._steps_of(obj, _children(state, obj))
        ]

    def _steps_of(self, obj: Obj, children: Children) -> "Iterator[_Step]":
        if obj["metadata"].get("deletionTimestamp") or (self.end and obj.get("status") == self.end):
            return
        ending = children.get(self.ends_with)
        if ending is not None and _has_ended(ending):
            yield _Step(self.resource, obj, {"status": dict(self.end)})
            return
        is_suspended = self._is_suspended(obj)
        wanted = {} if is_suspended else {it.slot: it for it in self.children(obj, children)}
        for slot, child in children.items():
            if slot not in wanted and not child["metadata"].get("deletionTimestamp"):
                yield _Step(_resource(child), child)
        for slot, new in wanted.items():
            owner = children.get(new.owner) if new.owner else obj
            is_missing = slot not in children and new.is_made_here
            if is_missing and owner is not None and _is_alive(owner):
                yield _Step(new.resource, _manifest(obj, owner, new), is_new=True)

    def _is_suspended(self, obj: Obj) -> bool:
        value, left = _at(obj, self.suspend_path), self.left_suspended
        if left is None:
            return value is True
        uid = obj["metadata"]["uid"]
        if value is True:
            left.add(uid)
        elif value is False:
            left.discard(uid)
        return uid in left


class _Step(NamedTuple):
    resource: Resource
    obj: Obj
    change: Obj | None = None  # None: it is deleted, unless it is new
    is_new: bool = False

    @property
    def key(self) -> Key:
        meta = self.obj["metadata"]
        return Key(self.resource, meta["namespace"], meta["name"])

    def is_seen(self, seen: Timeline, state: State) -> bool:
        if self.is_new:
            return any(it.key == self.key for it in reversed(seen.moments))
        found = state.get(self.key)
        if found is None or self.change is None:
            return found is None or not _is_alive(found)
        return bool(found.get("status") == self.change["status"])

    async def take(self, cluster: Cluster) -> bool:
        """Say whether the object was there, or is now."""
        meta = self.obj["metadata"]
        at = self.resource, meta["namespace"], meta["name"]
        try:
            if self.is_new:
                path = self.resource.path(meta["namespace"])
                await cluster.api.request("POST", path, self.obj)
            elif self.change is not None:
                await cluster.api.merge(*at, self.change)
            else:
                await cluster.api.delete(*at, propagationPolicy="Background")
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True


def definitions() -> list[Obj]:
    """Return a CRD for each kind, which takes any fields."""
    kinds = (PYTORCH_JOBS, MPI_JOBS, RAY_CLUSTERS, RAY_JOBS, LEADER_WORKER_SETS, MODELS)
    return [_definition(it) for it in kinds]


def pods_spec(gpus: int, run_for: str = "600s", restart: str = "Never") -> Obj:
    """Return a pod template of our scheduler."""
    limits = {GPU: f"{gpus}"} if gpus else {}
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    return {
        "metadata": {"annotations": {RUN_SECONDS: run_for}},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "restartPolicy": restart,
            "containers": [container],
        },
    }


def _pod(slot: str, template: Obj, labels: Mapping[str, str], owner: str = "") -> Child:
    meta = {**template.get("metadata", {}), "labels": dict(labels)}
    return Child(slot, PODS, {"metadata": meta, "spec": template["spec"]}, owner)


def _job(slot: str, template: Obj, labels: Mapping[str, str]) -> Child:
    meta = {**template.get("metadata", {}), "labels": dict(labels)}
    spec = {"backoffLimit": 0, "template": {**template, "metadata": meta}}
    return Child(slot, JOBS, {"metadata": {}, "spec": spec})


def _pytorch(obj: Obj, _children: Children) -> Iterator[Child]:
    for role, spec in obj["spec"]["pytorchReplicaSpecs"].items():
        for index in range(spec["replicas"]):
            labels = {
                KUBEFLOW_JOB_NAME: obj["metadata"]["name"],
                KUBEFLOW_REPLICA_TYPE: role.lower(),
                KUBEFLOW_REPLICA_INDEX: f"{index}",
            }
            yield _pod(f"{role.lower()}-{index}", spec["template"], labels)


def _mpi(obj: Obj, children: Children) -> Iterator[Child]:
    """Yield the launcher when all workers are ready."""
    specs = obj["spec"]["mpiReplicaSpecs"]
    named = {KUBEFLOW_JOB_NAME: obj["metadata"]["name"]}
    workers = [f"worker-{index}" for index in range(specs["Worker"]["replicas"])]
    for index, slot in enumerate(workers):
        labels = {**named, KUBEFLOW_JOB_ROLE: "worker", KUBEFLOW_REPLICA_INDEX: f"{index}"}
        yield _pod(slot, specs["Worker"]["template"], labels)
    if "launcher" in children or _are_ready(workers, children):
        labels = {**named, KUBEFLOW_JOB_ROLE: "launcher"}
        yield _job("launcher", specs["Launcher"]["template"], labels)


def _ray_cluster(obj: Obj, _children: Children) -> Iterator[Child]:
    yield from _ray_pods(obj["spec"], {RAY_CLUSTER: obj["metadata"]["name"]})


def _ray_job(obj: Obj, children: Children) -> Iterator[Child]:
    """Its cluster, and a Job that submits it as soon as the cluster is ready."""
    spec, named = obj["spec"], {RAY_OWNER: obj["metadata"]["name"]}
    yield Child("cluster", RAY_CLUSTERS, {"metadata": {}, "spec": spec["rayClusterSpec"]})
    pods = [*_ray_pods(spec["rayClusterSpec"], named, "cluster")]
    yield from pods
    if "submitter" in children or _are_ready([it.slot for it in pods], children):
        yield _job("submitter", spec["submitterPodTemplate"], named)


def _ray_pods(spec: Obj, named: Mapping[str, str], owner: str = "") -> Iterator[Child]:
    labels = {**named, RAY_NODE_TYPE: "head", RAY_GROUP: "headgroup"}
    yield _pod("head", spec["headGroupSpec"]["template"], labels, owner)
    for group in spec["workerGroupSpecs"]:
        for index in range(group["replicas"]):
            labels = {**named, RAY_NODE_TYPE: "worker", RAY_GROUP: group["groupName"]}
            yield _pod(f"{group['groupName']}-{index}", group["template"], labels, owner)


def _leader_worker_set(obj: Obj, _children: Children) -> Iterator[Child]:
    """Yield the StatefulSets, which make the pods; that of the workers belongs to their leader."""
    size = obj["spec"]["leaderWorkerTemplate"]["size"]
    yield _stateful_set("leaders", obj, 1, "leader")
    yield Child("leader", PODS, {}, "leaders", is_made_here=False)
    yield _stateful_set("workers", obj, size - 1, "worker", "leader")
    yield Child("worker", PODS, {}, "workers", is_made_here=False)


def _stateful_set(slot: str, obj: Obj, pods: int, pod_slot: str, owner: str = "") -> Child:
    name, template = obj["metadata"]["name"], obj["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    labels = {
        LWS_NAME: name,
        LWS_GROUP_INDEX: "0",
        LWS_WORKER_INDEX: "1" if owner else "0",
        _OF: name,
        _SLOT: pod_slot,
    }
    meta = {**template["metadata"], "labels": labels}
    spec = {
        "replicas": pods,
        "podManagementPolicy": "Parallel",
        "serviceName": slot,
        "selector": {"matchLabels": labels},
        "template": {"metadata": meta, "spec": {**template["spec"], "restartPolicy": "Always"}},
    }
    return Child(slot, STATEFUL_SETS, {"metadata": {}, "spec": spec}, owner)


def _model(obj: Obj, _children: Children) -> Iterator[Child]:
    for index in range(obj["spec"]["pods"]):
        yield _pod(f"pod-{index}", obj["spec"]["template"], {})


def _manifest(obj: Obj, owner: Obj, child: Child) -> Obj:
    meta, own = obj["metadata"], child.fields["metadata"]
    labels = {**own.get("labels", {}), _OF: meta["name"], _SLOT: child.slot}
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": child.resource.api_version,
        "kind": child.resource.kind,
        "metadata": {
            **own,
            "namespace": meta["namespace"],
            "name": f"{meta['name']}-{child.slot}-{next(_NUMBERS)}",
            "labels": labels,
            "ownerReferences": [reference],
        },
        "spec": child.fields["spec"],
    }


def _children(state: State, obj: Obj) -> dict[str, Obj]:
    labels = ((it, it["metadata"].get("labels", {})) for it in state.values())
    return {it[_SLOT]: child for child, it in labels if it.get(_OF) == obj["metadata"]["name"]}


def _are_ready(slots: Sequence[str], children: Children) -> bool:
    return all(slot in children and condition(children[slot], "Ready") for slot in slots)


def _is_alive(obj: Obj) -> bool:
    return not obj["metadata"].get("deletionTimestamp")


def _has_ended(child: Obj) -> bool:
    return condition(child, "Complete") or child.get("status", {}).get("phase") == "Succeeded"


def _resource(obj: Obj) -> Resource:
    return next(it for it in (PODS, *_BETWEEN) if it.kind == obj["kind"])


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        obj = obj.get(name, {})
    return obj


def _definition(resource: Resource) -> Obj:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [version],
        },
    }


_BETWEEN: Final = (JOBS, STATEFUL_SETS, RAY_CLUSTERS)
_SUCCEEDED: Final[Obj] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
_RUN_POLICY: Final = ("spec", "runPolicy", "suspend")
STAND_INS: Final = {
    it.resource.kind: it
    for it in (
        StandIn(PYTORCH_JOBS, _pytorch, _RUN_POLICY, "master-0", _SUCCEEDED),
        StandIn(MPI_JOBS, _mpi, _RUN_POLICY, "launcher", _SUCCEEDED),
        StandIn(RAY_CLUSTERS, _ray_cluster, ("spec", "suspend"), left_suspended=set()),
        StandIn(
            RAY_JOBS,
            _ray_job,
            ("spec", "suspend"),
            "submitter",
            {"jobDeploymentStatus": "Complete"},
        ),
        StandIn(LEADER_WORKER_SETS, _leader_worker_set),
        StandIn(MODELS, _model),
    )
}
