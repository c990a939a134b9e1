"""A stand-in for KAI v0.17: its objects as its chart and its processes write them. No product code.

What it writes is what a cluster has before a move: queues and PriorityClasses of the chart, the
Deployment of the scheduler, a PodGroup `pg-JOBSET-UID` for each JobSet, the annotation and the
label of its pods, and bindings. Its webhooks are not part of it.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import JOBSETS, NAMESPACES, NODES, PODS, Obj, Resource
from e2e.cluster.timeline import State, Timeline
from e2e.fixtures.install import (
    DEPLOYMENTS,
    MANIFESTS,
    PODGROUPS,
    PRIORITY_CLASSES,
    QUEUES,
    apply_all,
    build,
)
from e2e.fixtures.podgroups import PODGROUP, QUEUE, SUBGROUP, pods_in

_NAMESPACE: Final = "kai-scheduler"
_SCHEDULER: Final = "kai-scheduler-default"  # of the SchedulingShard `default`
_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_DEFAULT: Final = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
KAI_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
_SPEC: Final = {
    *("minMember", "minSubGroup", "queue", "priorityClassName", "preemptibility", "subGroups"),
    *("markUnschedulable", "schedulingBackoff", "topologyConstraint"),
    *("preemptionDelay", "stalenessGracePeriod"),
}
_SUB_GROUP: Final = {"name", "parent", "minMember", "minSubGroup", "topologyConstraint"}
_OWNER: Final = "kai.scheduler/top-owner-metadata"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"


def kai_queue(name: str, quota: int, limit: int = -1) -> Obj:
    """Return a queue as KAI's guides write it: no annotation says which namespaces may use it."""
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    return _queue(name, "", {"gpu": gpu, "cpu": _FREE, "memory": _FREE})


def _queue(name: str, parent: str, resources: Obj) -> Obj:
    spec: Obj = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {**_kind(QUEUES), "metadata": {"name": name}, "spec": spec}


def _kind(resource: Resource) -> Obj:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


class KaiStandIn:
    """KAI on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def install(self) -> None:
        """Create what KAI's chart creates; its scheduler becomes ready."""
        api = self._cluster.api
        await apply_all(self._cluster, await build(MANIFESTS / "base" / "crds"))
        for name, value in KAI_CLASSES.items():
            priority = {**_kind(PRIORITY_CLASSES), "metadata": {"name": name}, "value": value}
            await api.request("POST", PRIORITY_CLASSES.path(), priority)
        default = dict.fromkeys(("gpu", "cpu", "memory"), _DEFAULT)
        parent = _queue("default-parent-queue", "", default)
        child = _queue("default-queue", "default-parent-queue", default)
        await self.create_queues(parent, child)
        await api.create({**_kind(NAMESPACES), "metadata": {"name": _NAMESPACE}})
        nodes, _ = await api.list(NODES)
        deployment = _deployment(nodes[0]["metadata"]["name"])
        await api.request("POST", DEPLOYMENTS.path(_NAMESPACE), deployment)

    async def create_queues(self, *queues: Obj) -> None:
        """Create queues."""
        for obj in queues:
            await self._cluster.api.request("POST", QUEUES.path(), obj)

    async def scale(self, replicas: int) -> None:
        """Scale the scheduler, as an administrator does."""
        fields = {"spec": {"replicas": replicas}}
        await self._cluster.api.merge(DEPLOYMENTS, _NAMESPACE, _SCHEDULER, fields)

    async def group(self, seen: Timeline, job: str, queue: str, pods: int) -> None:
        """Group the pods of a TrainJob, as KAI's podgrouper does when they exist."""
        await seen.until(lambda state: len(_pods_of(state, job)) == pods, f"the pods of {job}")
        (jobset,) = (it for it in seen.objects(JOBSETS) if it["metadata"]["name"] == job)
        group = _podgroup(jobset, queue)
        path = PODGROUPS.path(jobset["metadata"]["namespace"])
        await self._cluster.api.request("POST", path, group, query={"fieldManager": "podgrouper"})
        for pod in _pods_of(seen.state, job):
            labels = pod["metadata"]["labels"]
            leaf = f"{labels[_REPLICATED_JOB]}-replica-{labels[_JOB_INDEX]}"
            annotations = {PODGROUP: group["metadata"]["name"]}
            fields = {"metadata": {"annotations": annotations, "labels": {SUBGROUP: leaf}}}
            meta = pod["metadata"]
            await self._cluster.api.merge(PODS, meta["namespace"], meta["name"], fields)

    async def bind(self, seen: Timeline, job: str, node: str) -> None:
        """Bind the pods of a TrainJob to a node, as KAI's binder does."""
        for pod in _pods_of(seen.state, job):
            await self._cluster.api.bind(
                pod["metadata"]["namespace"], pod["metadata"]["name"], node
            )

    def faults_of(self, group: Obj, pods: list[Obj]) -> list[str]:
        """Return what KAI v0.17 would not read or would refuse of a PodGroup and its pods."""
        return [*_spec_faults(group["spec"]), *_member_faults(group, pods)]


def _spec_faults(spec: Obj) -> Iterator[str]:
    """Yield unknown fields, and what KAI's webhook of PodGroups refuses."""
    yield from spec.keys() - _SPEC
    groups = spec.get("subGroups", [])
    names = [it["name"] for it in groups]
    parents = {it["parent"] for it in groups if it.get("parent")}
    yield from parents - {*names}
    yield from (name for name, count in Counter(names).items() if count > 1)
    if "minMember" in spec and "minSubGroup" in spec:
        yield "minMember and minSubGroup"
    for it in groups:
        yield from it.keys() - _SUB_GROUP
        is_leaf = it["name"] not in parents
        if is_leaf and ("minSubGroup" in it or "minMember" not in it):
            yield f"leaf {it['name']}"
        if not is_leaf and "minMember" in it:
            yield f"inner {it['name']}"


def _member_faults(group: Obj, pods: list[Obj]) -> Iterator[str]:
    """Yield leaves that have fewer pods than their minimum: KAI would not start them."""
    name = group["metadata"]["name"]
    members = [it for it in pods if it["metadata"]["annotations"].get(PODGROUP) == name]
    counts = Counter(it["metadata"]["labels"].get(SUBGROUP) for it in members)
    for it in group["spec"].get("subGroups", []):
        if members and counts[it["name"]] < it.get("minMember", 0):
            yield f"{name}: {it['name']} has {counts[it['name']]} pods"


def _deployment(node: str) -> Obj:
    """Return KAI's scheduler with one replica, which holds no Lease; its pod is on a node."""
    labels = {"app": "scheduler"}
    pod = {"nodeName": node, "containers": [{"name": "scheduler", "image": "none"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {**_kind(DEPLOYMENTS), "metadata": {"name": _SCHEDULER}, "spec": spec}


def _podgroup(jobset: Obj, queue: str) -> Obj:
    """Return the PodGroup of a JobSet since KAI v0.16: one, with a tree of two levels."""
    meta = jobset["metadata"]
    jobs = jobset["spec"]["replicatedJobs"]
    leaves = [(job, index) for job in jobs for index in range(job.get("replicas", 1))]
    inner = [{"name": job["name"], "minSubGroup": job.get("replicas", 1)} for job in jobs]
    tree = [
        {
            "name": f"{job['name']}-replica-{index}",
            "parent": job["name"],
            "minMember": job["template"]["spec"].get("parallelism", 1),
        }
        for job, index in leaves
    ]
    group, version = JOBSETS.group, JOBSETS.version
    owner = f"name: {meta['name']}\nuid: {meta['uid']}\ngroup: {group}\nversion: {version}\n"
    reference = {**_kind(JOBSETS), "name": meta["name"], "uid": meta["uid"]}
    return {
        **_kind(PODGROUPS),
        "metadata": {
            "name": f"pg-{meta['name']}-{meta['uid']}",
            "namespace": meta["namespace"],
            "labels": {**meta.get("labels", {}), QUEUE: queue},
            "annotations": {**meta.get("annotations", {}), _OWNER: f"{owner}kind: JobSet\n"},
            "ownerReferences": [reference],
        },
        "spec": {
            "minSubGroup": len(jobs),
            "priorityClassName": "train",
            "queue": queue,
            "subGroups": [*inner, *tree],
        },
    }


def _pods_of(state: State, job: str) -> list[Obj]:
    return [it for it in pods_in(state) if it["metadata"].get("labels", {}).get(_JOBSET) == job]
